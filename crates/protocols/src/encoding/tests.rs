//! The check of an encoding that the tests of all protocols share.

use quorate_types::codec::Wire;
use std::fmt::Debug;

/// Checks that a value has exactly one encoding: it is read back, and no shorter or longer bytes are accepted.
pub(crate) fn check_one_encoding<T: Wire + PartialEq + Debug>(value: &T) {
    let mut bytes = value.to_bytes();
    assert_eq!(T::from_bytes(&bytes).as_ref(), Ok(value));
    for end in 0..bytes.len() {
        assert!(T::from_bytes(&bytes[..end]).is_err(), "{end} of {}", bytes.len());
    }
    bytes.push(0);
    assert!(T::from_bytes(&bytes).is_err());
}

#[test]
fn each_field_and_variant_is_encoded_in_the_order_of_its_list() {
    #[derive(PartialEq, Debug)]
    struct Both {
        first: u8,
        list: Vec<u16>,
    }
    quorate_types::wire_struct!(Both { first, list[2, 2] });
    #[derive(PartialEq, Debug)]
    enum Either {
        Left(u8, bool),
        Right { both: Both },
        Nothing,
    }
    super::variants!(Either, "either": 3 = Left(number, flag), 7 = Right { both }, 9 = Nothing,);
    let both = |list: &[u16]| Either::Right { both: Both { first: 5, list: list.to_vec() } };
    assert_eq!(Either::Left(4, true).to_bytes(), [3, 4, 1]);
    assert_eq!(both(&[1, 2]).to_bytes(), [7, 5, 2, 0, 0, 0, 1, 0, 2, 0]);
    assert_eq!(Either::Nothing.to_bytes(), [9]);
    for value in [Either::Left(4, true), both(&[]), both(&[1, 2]), Either::Nothing] {
        check_one_encoding(&value);
    }
    assert!(Either::from_bytes(&both(&[1, 2, 3]).to_bytes()).is_err(), "more values than the list may have");
    assert!(Either::from_bytes(&[4]).is_err(), "a tag of no variant");
}
