//! Layouts by hand from RFC 5531, and every way in which a header can be wrong.

use super::*;

const CALL_WITH_SYS: &[u8] = b"\x01\x02\x03\x04\0\0\0\0\0\0\0\x02\0\x01\x86\xa3\0\0\0\x03\0\0\0\x01\
    \0\0\0\x01\0\0\0\x20\0\0\0\x09\0\0\0\x03lab\0\0\0\x03\xe8\0\0\0\x64\0\0\0\x02\0\0\0\x04\0\0\0\x18\
    \0\0\0\0\0\0\0\0";

fn header() -> CallHeader {
    let sys = AuthSys {
        stamp: 9,
        machine: Bytes::from_static(b"lab"),
        uid: 1000,
        gid: 100,
        gids: Gids::new(&[4, 24]).unwrap(),
    };
    CallHeader { xid: 0x0102_0304, prog: 100_003, vers: 3, proc: 1, cred: Credential::Sys(sys) }
}

/// A call with any credential and verifier, in the order of the wire.
fn call(proc: u32, cred: &[u32], verf: &[u32]) -> Bytes {
    let mut w = Writer::new();
    [7, 0, 2, 100_003, 3, proc].iter().chain(cred).chain(verf).for_each(|word| w.u32(*word));
    w.into_bytes()
}

fn sys_body(gids: usize) -> Vec<u32> {
    let mut body = vec![AUTH_SYS, 4 * (5 + gids as u32), 0, 0, 1, 2, gids as u32];
    body.extend(0..gids as u32);
    body
}

fn refused(refusal: Refusal) -> std::result::Result<(CallHeader, u32), BadCall> {
    Err(BadCall::Refused { xid: 7, refusal })
}

fn decode(record: Bytes) -> std::result::Result<(CallHeader, u32), BadCall> {
    CallHeader::decode(record).map(|(header, rest)| (header, rest.remaining() as u32))
}

#[test]
fn a_call_with_auth_sys_has_the_layout_of_the_rfc() {
    let mut w = Writer::new();
    header().encode(&mut w);
    w.u32(0xaabb_ccdd);
    let bytes = w.into_bytes();
    assert_eq!(&bytes[..bytes.len() - 4], CALL_WITH_SYS);
    let (decoded, mut args) = CallHeader::decode(bytes).unwrap();
    assert_eq!(decoded, header());
    assert_eq!(args.u32(), Ok(0xaabb_ccdd));
    assert_eq!(args.finish(), Ok(()));
}

#[test]
fn a_success_has_the_layout_of_the_rfc() {
    let mut w = Writer::new();
    encode_success(5, &mut w);
    let bytes = w.into_bytes();
    assert_eq!(&bytes[..], b"\0\0\0\x05\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    let (xid, results) = decode_reply(bytes).unwrap();
    assert_eq!((xid, results.unwrap().remaining()), (5, 0));
}

#[test]
fn each_refusal_has_the_layout_of_the_rfc() {
    let accepted = |tail: &[u8]| [&b"\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"[..], tail].concat();
    let denied = |tail: &[u8]| [&b"\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0"[..], tail].concat();
    let cases = [
        (Refusal::ProgUnavail, accepted(b"\x01")),
        (Refusal::ProgMismatch { low: 2, high: 4 }, accepted(b"\x02\0\0\0\x02\0\0\0\x04")),
        (Refusal::ProcUnavail, accepted(b"\x03")),
        (Refusal::GarbageArgs, accepted(b"\x04")),
        (Refusal::SystemErr, accepted(b"\x05")),
        (Refusal::RpcMismatch { low: 2, high: 2 }, denied(b"\0\0\0\0\x02\0\0\0\x02")),
        (Refusal::AuthError(AuthStat::BadCred), denied(b"\x01\0\0\0\x01")),
        (Refusal::AuthError(AuthStat::TooWeak), denied(b"\x01\0\0\0\x05")),
    ];
    for (refusal, wire) in cases {
        let mut w = Writer::new();
        encode_refusal(1, &refusal, &mut w);
        let bytes = w.into_bytes();
        assert_eq!(bytes, wire, "{refusal}");
        let (xid, answer) = decode_reply(bytes).unwrap();
        assert_eq!((xid, answer.unwrap_err()), (1, refusal));
    }
}

#[test]
fn sixteen_groups_are_taken_and_seventeen_are_not() {
    let (header, rest) = decode(call(1, &sys_body(16), &[0, 0])).unwrap();
    let Credential::Sys(sys) = header.cred else { panic!("{header:?}") };
    assert_eq!((sys.gids.len(), sys.gids[15], rest), (16, 15, 0));
    let bad = refused(Refusal::AuthError(AuthStat::BadCred));
    assert_eq!(decode(call(1, &sys_body(17), &[0, 0])), bad);
    assert_eq!(decode(call(0, &sys_body(17), &[0, 0])), bad);
}

#[test]
fn a_machine_name_has_255_bytes_at_most() {
    for (len, good) in [(255, true), (256, false)] {
        let sys = AuthSys { machine: Bytes::from(vec![b'm'; len]), ..AuthSys::default() };
        let mut w = Writer::new();
        CallHeader { cred: Credential::Sys(sys), ..header() }.encode(&mut w);
        assert_eq!(CallHeader::decode(w.into_bytes()).is_ok(), good, "{len}");
    }
}

#[test]
fn credentials_that_do_not_parse_are_bad() {
    let bad = refused(Refusal::AuthError(AuthStat::BadCred));
    let mut trailing = sys_body(0);
    trailing[1] += 4;
    trailing.push(0);
    let cases: [&[u32]; 4] = [&[AUTH_SYS], &[AUTH_SYS, 8, 0, 0], &[AUTH_SYS, 404], &trailing];
    for cred in cases {
        assert_eq!(decode(call(1, cred, &[0, 0])), bad, "{cred:?}");
    }
    assert_eq!(decode(call(1, &[], &[])), bad);
    assert_eq!(decode(call(1, &[0, 0], &[0])), refused(Refusal::AuthError(AuthStat::BadVerf)));
}

#[test]
fn only_null_may_have_an_unknown_flavour() {
    let (header, _) = decode(call(0, &[6, 4, 1], &[6, 0])).unwrap();
    assert_eq!(header.cred, Credential::Other(6));
    assert_eq!(decode(call(1, &[6, 4, 1], &[0, 0])), refused(Refusal::AuthError(AuthStat::TooWeak)));
    assert_eq!(decode(call(1, &[0, 0], &[0, 0])).unwrap().0.cred, Credential::None);
}

#[test]
fn another_rpc_version_is_told_ours() {
    let mut w = Writer::new();
    [7, 0, 3].iter().for_each(|word| w.u32(*word));
    assert_eq!(decode(w.into_bytes()), refused(Refusal::RpcMismatch { low: 2, high: 2 }));
}

#[test]
fn what_is_no_call_is_garbage() {
    let mut reply = Writer::new();
    encode_success(1, &mut reply);
    for garbage in [Bytes::new(), Bytes::from_static(b"\0\0\0\x01\0\0\0\0"), reply.into_bytes()] {
        assert_eq!(decode(garbage), Err(BadCall::Garbage));
    }
    assert_eq!(decode(call(1, &[], &[]).slice(..20)), Err(BadCall::Garbage));
}

#[test]
fn a_reply_that_makes_no_sense_is_an_error() {
    for words in [&[1, 1, 2][..], &[1, 1, 1, 2], &[1, 1, 0, 0, 0, 6], &[1, 0, 2], &[1, 1, 1, 1, 99]] {
        let mut w = Writer::new();
        words.iter().for_each(|word| w.u32(*word));
        assert_eq!(decode_reply(w.into_bytes()).err(), Some(XdrError::OutOfRange), "{words:?}");
    }
}
