//! Our end against agents that lack one feature, each in turn: every call has its answer, and none of them is asked
//! what it does not know.

use super::super::server::tests::{Gated, attr};
use super::super::verbs::{
    BarePage, CLAIMS, CheckedChunk, ConfirmResult, Confirmed, JOINS, ListArgs, StatResult,
};
use super::super::verbs::{TERMS, WalkedPage, WalkedPages, WatchedPage};
use super::tests::session_on;
use super::*;
use crate::agent::server::Serve;
use crate::{HomePath, SetAttr, Time, Turn, XattrHow};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

fn loc(path: &[u8]) -> Loc {
    Loc { path: HomePath::parse(path).unwrap(), id: None }
}

/// The features without which an agent does not understand the request.
fn needs(request: &Request) -> u64 {
    let op = |placed: &Placed| match placed.op {
        Op::SetXattr { .. } => XATTRS,
        Op::SetAttr { base: Some(_), .. } => BASES,
        _ => 0,
    };
    match request {
        Request::Xattrs(_) | Request::Listx(_) => XATTRS,
        Request::Claim(_) => CLAIMS,
        Request::Claimt(_) => CLAIMS | TERMS,
        Request::Watch(_) => WATCHES,
        Request::Keep(_) => WATCHES | KEEPS,
        Request::Confirm(_) => WATCHES | CONFIRMS,
        Request::Walk(_) => XATTRS | WATCHES | WALKS,
        Request::Copy(_) => COPIES,
        Request::Spool(_) => SPOOLS,
        Request::Unspool(_) => SPOOLS | UNSPOOLS,
        Request::Readk(_) => KNOWN,
        Request::Readc(_) | Request::Stagec(_) => CHECKS,
        Request::Apply(ops) => ops.iter().map(op).fold(0, |all, one| all | one),
        Request::Applyc(CheckedOps(ops)) => ops.iter().flatten().map(op).fold(SUMS, |all, one| all | one),
        _ => 0,
    }
}

fn dir() -> crate::Attr {
    crate::Attr { kind: crate::Kind::Dir, ..attr(0) }
}

fn done(ops: &[Placed]) -> Vec<Outcome> {
    ops.iter().map(|_| Outcome::Done(crate::Done { attr: None, dirs: vec![] })).collect()
}

/// What an agent with these features says.
fn answer(home: &Gated, features: u64, request: Request) -> Result<Reply> {
    assert_eq!(needs(&request) & !features, 0, "asked what it does not know: {request:?}");
    let list = |args: &ListArgs| home.list(&args.dir, args.after.as_ref(), args.max);
    Ok(match request {
        Request::Hello(offer) => {
            let home = home.hello()?;
            Reply::Hello(Accept { features: offer.features & features, window: 9, home, ..Accept::nothing() })
        }
        Request::Stat(all) => {
            Reply::Stat(all.iter().map(|at| home.stat(at).map(StatResult::Seen)).collect::<Result<_>>()?)
        }
        Request::List(args) => Reply::List(list(&args)?),
        Request::Listx(args) => Reply::Listx(BarePage::of(list(&args)?)),
        Request::Read(args) => Reply::Read(home.read(&args.file, args.at, args.len)?),
        Request::Readc(args) => Reply::Readc(CheckedChunk::of(home.read(&args.file, args.at, args.len)?)),
        Request::Stagec(args) => {
            let args = args.checked().expect("damaged bytes");
            Reply::Stagec(home.stage(args.op, args.at, args.data)?)
        }
        Request::Readk(KnownArgs { read, known }) => {
            let chunk = home.read(&read.file, read.at, read.len)?;
            Reply::Readk(Sparse::of(chunk.attr, &[], &chunk.data, &[], &known))
        }
        Request::Spool(_) => Reply::Spool(0),
        Request::Unspool(_) => Reply::Unspool(true),
        Request::Copy(args) => Reply::Copy(home.copy(args.op, &args.places, &args.parts)?),
        Request::Readlink(at) => Reply::Readlink(home.readlink(&at)?),
        Request::Statfs(at) => Reply::Statfs(home.statfs(&at)?),
        Request::Stage(args) => Reply::Stage(home.stage(args.op, args.at, args.data)?),
        Request::Apply(ops) => Reply::Apply(done(&ops)),
        Request::Applyc(CheckedOps(ops)) => Reply::Applyc(done(&ops.expect("damaged bytes"))),
        Request::Xattrs(args) => Reply::Xattrs(home.xattrs(&args.at, args.want.as_ref())?),
        Request::Claim(_) => Reply::Claim(Some(Claimed { begun: vec![1], ..Claimed::default() })),
        Request::Claimt(_) => {
            let known = Some(Claimed { begun: vec![2], ..Claimed::default() });
            Reply::Claimt(Entered { kept: true, known })
        }
        Request::Watch(args) => {
            let page = BarePage::of(home.list(&args.dir, None, args.max)?);
            Reply::Watch(WatchedPage { page, watched: true })
        }
        Request::Confirm(dirs) => {
            let same = || Confirmed { applied: 0, watched: true, bare: Bytes::new() };
            Reply::Confirm(dirs.iter().map(|_| ConfirmResult::Same(same())).collect())
        }
        Request::Walk(args) => {
            let page = BarePage {
                page: Page { dir: dir(), ..home.list(&args.from[0], None, 3)? },
                bare: Bytes::new(),
            };
            let page =
                WalkedPage { path: args.from[0].path.clone(), page: WatchedPage { page, watched: true } };
            Reply::Walk(WalkedPages { came: 1, pages: vec![page] })
        }
        #[allow(unreachable_patterns)]
        other => panic!("what is {other:?}?"),
    })
}

/// An agent with these features. It tells whether it was ever asked anything that it does not know.
fn agent(features: u64) -> (std::os::unix::net::UnixStream, Arc<AtomicBool>) {
    let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let lost = Arc::new(AtomicBool::new(false));
    let says = lost.clone();
    std::thread::spawn(move || {
        let home = Gated::default();
        theirs.write_all(&frame::preamble()).unwrap();
        theirs.read_exact(&mut [0; frame::PREAMBLE_LEN]).unwrap();
        let mut head = [0; HEADER_LEN];
        while theirs.read_exact(&mut head).is_ok() {
            let header = Header::decode(&head).unwrap();
            let mut body = vec![0; header.length as usize];
            theirs.read_exact(&mut body).unwrap();
            let request = Request::from_bytes(body.into()).unwrap();
            let asked = std::panic::AssertUnwindSafe(|| answer(&home, features, request));
            let Ok(reply) = std::panic::catch_unwind(asked) else {
                says.store(true, Ordering::Relaxed);
                return;
            };
            let reply = reply.unwrap_or_else(|e| Reply::Failed(super::super::verbs::Failure(e)));
            let reply = Frame::new(Type::Reply, header.class, header.id, vec![reply.to_bytes()]);
            let _ = theirs.write_all(&reply.to_vec());
        }
    });
    (ours, lost)
}

fn placed(seq: u64, op: Op<Loc, crate::Payload>) -> Placed {
    let id = OpId { gateway: 1, volume: 1, seq };
    Placed { id, time: Time::default(), plain: false, resent: false, op }
}

/// Makes each call once.
async fn every_call(s: &Session, features: u64) {
    let has = |wanted| features & wanted == wanted;
    let (f, d) = (loc(b"f"), loc(b"d"));
    assert_eq!(s.attach().await.unwrap().uid, 7);
    assert_eq!(s.stat(&loc(b"abcd")).await.unwrap().attr.size, 4);
    let listed = s.list(&d, None, 3).await.unwrap();
    assert_eq!(listed.entries.len(), 3);
    assert_eq!(listed.entries[0].bare, has(XATTRS), "it tells what has no attributes, or tells nothing");
    for watched in [s.watch(&d, 3, 1).await.unwrap(), s.watch_later(&d, 3, 1).await.unwrap()] {
        assert_eq!((watched.page.entries.len(), watched.epoch.is_some()), (3, has(WATCHES | XATTRS)));
    }
    let believed = crate::Believed { dir: d.clone(), mark: 1, digest: [0; 16] };
    let confirmed = s.confirm(vec![believed], false).await;
    match has(XATTRS | WATCHES | CONFIRMS) {
        true => assert!(matches!(&confirmed.unwrap()[..], [Ok(crate::Belief::True { .. })])),
        false => assert_eq!(confirmed.unwrap_err().kind, ErrorKind::Unsupported),
    }
    let walked = s.walk(vec![d.clone()], 9, false).await;
    match has(XATTRS | WATCHES | WALKS) {
        true => assert_eq!(walked.unwrap().dirs[0].1.page.entries.len(), 3),
        false => assert_eq!(walked.unwrap_err().kind, ErrorKind::Unsupported),
    }
    assert_eq!(s.epoch().is_some(), has(WATCHES));
    for chunk in [s.read(&f, 3, 10).await.unwrap(), s.read_in(Turn::Later, &f, 3, 10).await.unwrap()] {
        assert_eq!(&chunk.data[..], [3; 10]);
    }
    assert_eq!(&s.readlink(&f).await.unwrap()[..], b"target");
    assert_eq!(s.statfs(&f).await.unwrap_err().kind, ErrorKind::Io, "as that home says");
    let name = XattrName::new(b"user.a").unwrap();
    match (s.xattrs(&f, Some(&name)).await, has(XATTRS)) {
        (Ok(xattrs), true) => assert_eq!(xattrs.list[0].name, name),
        (Err(e), false) => assert_eq!(e.kind, ErrorKind::Unsupported),
        other => panic!("{other:?}"),
    }
    assert_eq!(s.claim(1, 1, vec![1]).await.unwrap().is_some(), has(CLAIMS));
    let term = crate::Term { known: vec![[1; 16]], new: [2; 16], next: 3 };
    let entered = s.claim_in(1, 1, vec![1], term).await.unwrap();
    assert_eq!(entered.kept, has(CLAIMS | TERMS));
    assert_eq!(entered.known.map(|c| c.begun == [2]), has(CLAIMS).then_some(has(TERMS)));
    s.stage(OpId { gateway: 1, volume: 1, seq: 2 }, 0, vec![1; 300_000].into()).await.unwrap();
    let spool = OpId { gateway: 1, volume: 1, seq: 3 };
    let spooled = s.spool(spool).await.map_err(|e| e.kind);
    assert_eq!(spooled, if has(SPOOLS) { Ok(0) } else { Err(ErrorKind::Unsupported) });
    s.unspool(spool).await.unwrap();
    let part = Copied { at: 0, from: 3, len: 10, hash: [0; 32] };
    let copied = s.copy(OpId { gateway: 1, volume: 1, seq: 2 }, vec![f.clone()], vec![part]).await;
    assert_eq!(copied.map_err(|e| e.kind), if has(COPIES) { Ok(()) } else { Err(ErrorKind::Unsupported) });
    let sparse = s.read_known(&f, 3, 10, vec![1, 2], false).await.map(|sparse| sparse.whole(10, |_| None));
    let wanted: std::result::Result<Option<Bytes>, ErrorKind> =
        if has(KNOWN) { Ok(Some(vec![3; 10].into())) } else { Err(ErrorKind::Unsupported) };
    assert_eq!(sparse.map_err(|e| e.kind), wanted);
    let base = Some(attr(3).version());
    let set = placed(2, Op::SetAttr { object: f.clone(), base, set: SetAttr::default() });
    let done = Outcome::Done(crate::Done { attr: None, dirs: vec![] });
    assert_eq!(s.apply(vec![set]).await.unwrap(), std::slice::from_ref(&done));
    let xattr = placed(3, Op::SetXattr { object: f, name, value: None, how: XattrHow::Any });
    let wanted = if has(XATTRS) { done } else { Outcome::Refused(ErrorKind::Unsupported) };
    assert_eq!(s.apply(vec![xattr]).await.unwrap(), [wanted]);
}

#[tokio::test]
async fn an_agent_that_lacks_any_one_feature_still_answers_every_call() {
    let each = (0..64).map(|bit| 1 << bit).filter(|bit| FEATURES & bit != 0);
    for missing in each.chain([0, FEATURES]) {
        // Bits that only a later one knows are not agreed on.
        let (stream, lost) = agent(FEATURES & !missing | 1 << 63);
        let (session, _) = session_on(stream).await;
        let features = session.accept().features;
        assert_eq!(features, FEATURES & !missing);
        tokio::time::timeout(Duration::from_secs(60), every_call(&session, features))
            .await
            .unwrap_or_else(|_| panic!("no answer without {missing}"));
        assert!(!lost.load(Ordering::Relaxed), "without {missing} it was asked what it does not know");
    }
    assert_ne!(FEATURES & JOINS, 0);
}
