//! Reads that had no room in the reply to their bundle, and the rule that lets a client ask them again.

use super::{KvError, KvOp, KvResult};
use quorate_types::Wire as _;

/// Whether a client may ask an operation again in a bundle of its own. It may when the operation is a read whose
/// result had no room in the reply. `later` has the operations that the client has sent behind it in the same call.
/// The result is false if one of them may have written a key of the read, because the new answer would be one of a later time.
///
/// The result is never true for an operation that may have changed the store.
pub fn may_ask_again(op: &[u8], result: &[u8], later: &mut dyn Iterator<Item = &[u8]>) -> bool {
    if KvResult::from_bytes(result) != Ok(KvResult::Error(KvError::NoRoom)) {
        return false;
    }
    match KvOp::parse(op) {
        Ok(KvOp::Get { key }) => !later.filter_map(written).any(|written| written == key),
        Ok(KvOp::Scan { from, to, .. }) => {
            let is_read = |key: &[u8]| from <= key && to.is_none_or(|to| key < to);
            !later.filter_map(written).any(is_read)
        }
        Ok(KvOp::Echo { .. }) => true,
        Ok(KvOp::Put { .. } | KvOp::Delete { .. } | KvOp::CompareAndSwap { .. } | KvOp::Increment { .. })
        | Err(_) => false,
    }
}

/// Returns the key that an operation may write.
fn written(op: &[u8]) -> Option<&[u8]> {
    match KvOp::parse(op).ok()? {
        KvOp::Put { key, .. }
        | KvOp::Delete { key }
        | KvOp::CompareAndSwap { key, .. }
        | KvOp::Increment { key, .. } => Some(key),
        KvOp::Get { .. } | KvOp::Scan { .. } | KvOp::Echo { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_again(op: KvOp<'_>, result: &KvResult, later: &[KvOp<'_>]) -> bool {
        let later: Vec<Vec<u8>> = later.iter().map(KvOp::to_bytes).collect();
        may_ask_again(&op.to_bytes(), &result.to_bytes(), &mut later.iter().map(Vec::as_slice))
    }

    #[test]
    fn only_reads_without_room_are_asked_again() {
        let no_room = KvResult::Error(KvError::NoRoom);
        let (key, value) = (&b"k"[..], &b"v"[..]);
        let reads = [
            KvOp::Get { key },
            KvOp::Scan { from: b"a", to: Some(b"x"), limit: 7 },
            KvOp::Scan { from: b"a", to: None, limit: 7 },
            KvOp::Echo { reply_bytes: 7, padding: b"" },
        ];
        let writes = [
            KvOp::Put { key, value },
            KvOp::Delete { key },
            KvOp::CompareAndSwap { key, expect: None, value },
            KvOp::Increment { key, by: 1 },
        ];
        let elsewhere = [KvOp::Put { key: b"y", value }, KvOp::Increment { key: b"0", by: 1 }];
        for read in reads {
            assert!(is_again(read, &no_room, &[]), "{read:?}");
            assert!(is_again(read, &no_room, &reads), "{read:?}");
            let is_without_end = matches!(read, KvOp::Scan { to: None, .. });
            assert_eq!(is_again(read, &no_room, &elsewhere), !is_without_end, "{read:?}");
            for other in [KvResult::Absent, KvResult::Done, KvResult::Error(KvError::Malformed)] {
                assert!(!is_again(read, &other, &[]), "{read:?} {other:?}");
            }
            for write in writes {
                let is_echo = matches!(read, KvOp::Echo { .. });
                assert_eq!(is_again(read, &no_room, &[write]), is_echo, "{read:?} before {write:?}");
            }
        }
        for write in writes {
            assert!(!is_again(write, &no_room, &[]), "{write:?}");
        }
        assert!(!may_ask_again(b"nothing", &no_room.to_bytes(), &mut std::iter::empty()));
    }
}
