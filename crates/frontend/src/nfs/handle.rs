//! File handles: 32 bytes that name one object for ever and cannot be made by anyone else.
//!
//! ```text
//! version 1 | flags 1 | export 2 | volume 4 | object id 8 | generation 4 | MAC 12
//! ```
//!
//! Numbers are big-endian. Flags, export and generation are zero in version 1. The MAC is SipHash-2-4
//! with 128 bits (cut to 96) over the 20 bytes before it, keyed by the secret of the state directory. A handle
//! therefore survives restarts, and garbage is refused (`NFS3ERR_BADHANDLE`) without asking the engine.
//! Whether the object still exists is the engine's answer (`NFS3ERR_STALE`).

use siphasher::sip128::SipHasher24;
use vfs::Oid;

/// Length of a handle: NFS version 2 fixes it (RFC 1094 §2.3.3), versions 3 and 4 allow more.
pub const LEN: usize = 32;
const SIGNED: usize = 20;
const VERSION: u8 = 1;

/// Makes and checks handles of one state directory.
#[derive(Clone)]
pub struct Handles {
    mac: SipHasher24,
}

impl Handles {
    /// With the secret of the state directory.
    pub fn new(key: [u8; 16]) -> Handles {
        Handles { mac: SipHasher24::new_with_key(&key) }
    }

    /// The handle of an object.
    pub fn encode(&self, oid: Oid) -> [u8; LEN] {
        let mut handle = [0; LEN];
        handle[0] = VERSION;
        handle[4..8].copy_from_slice(&oid.volume.to_be_bytes());
        handle[8..16].copy_from_slice(&oid.id.to_be_bytes());
        let mac = self.mac.hash(&handle[..SIGNED]).as_bytes();
        handle[SIGNED..].copy_from_slice(&mac[..LEN - SIGNED]);
        handle
    }

    /// The object of a handle that we made; `None` for every other sequence of bytes.
    pub fn decode(&self, handle: &[u8]) -> Option<Oid> {
        let handle: &[u8; LEN] = handle.try_into().ok()?;
        let oid = Oid {
            volume: u32::from_be_bytes(*handle[4..].first_chunk()?),
            id: u64::from_be_bytes(*handle[8..].first_chunk()?),
        };
        // All bytes are compared, so that the time taken tells nothing of the right MAC.
        let different = self.encode(oid).iter().zip(handle).fold(0, |d, (a, b)| d | (a ^ b));
        (different == 0).then_some(oid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OID: Oid = Oid { volume: 0x0102_0304, id: 0x1112_1314_1516_1718 };

    #[test]
    fn a_handle_has_the_documented_form() {
        let handle = Handles::new([7; 16]).encode(OID);
        let fixed = b"\x01\0\0\0\x01\x02\x03\x04\x11\x12\x13\x14\x15\x16\x17\x18\0\0\0\0";
        assert_eq!(&handle[..SIGNED], fixed);
        assert_eq!(Handles::new([7; 16]).decode(&handle), Some(OID));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let handles = Handles::new([7; 16]);
        let handle = handles.encode(OID);
        for bit in 0..LEN * 8 {
            let mut forged = handle;
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(handles.decode(&forged), None, "bit {bit}");
        }
    }

    #[test]
    fn other_lengths_and_other_keys_are_refused() {
        let handles = Handles::new([7; 16]);
        let handle = handles.encode(OID);
        assert_eq!(handles.decode(&handle[..LEN - 1]), None);
        assert_eq!(handles.decode(&[&handle[..], &[0]].concat()), None);
        assert_eq!(handles.decode(&[]), None);
        assert_eq!(Handles::new([8; 16]).decode(&handle), None);
    }
}
