//! Encodings that follow from a list of fields. One list serves both directions, so that they cannot differ.
//!
//! A field with `[max, least]` is a list of at most `max` values of at least `least` bytes.

#[cfg(test)]
pub(crate) mod tests;

/// Encodes a struct as its fields in this order.
macro_rules! fields {
    ($type:ident { $($field:ident $([$max:expr, $least:expr])?),* }) => {
        impl quorate_types::codec::Wire for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                $($crate::encoding::field!(encode &self.$field, out $(, $max)?);)*
            }
            fn decode(
                reader: &mut quorate_types::codec::Reader<'_>,
            ) -> Result<Self, quorate_types::codec::DecodeError> {
                $(let $field = $crate::encoding::field!(decode $field, reader $(, $max, $least)?)?;)*
                Ok(Self { $($field),* })
            }
        }
    };
}
pub(crate) use fields;

/// Encodes an enum as the tag of its variant and the fields of that variant in this order.
macro_rules! variants {
    ($type:ident $(<$rules:ident: $bound:ident>)?, $name:literal: $($list:tt)*) => {
        impl $(<$rules: $bound>)? quorate_types::codec::Wire for $type $(<$rules>)? {
            $crate::encoding::variant_functions!(encode, decode, $name: $($list)*);
        }
    };
}
pub(crate) use variants;

/// Defines the two functions of [`variants`], with these names.
macro_rules! variant_functions {
    ($vis:vis $encode:ident, $decode:ident, $name:literal: $($tag:tt = $variant:ident
        $({ $($field:ident $([$max:expr, $least:expr])?),* })? $(( $($value:ident),* ))?,)*) => {
        $vis fn $encode(&self, out: &mut Vec<u8>) {
            match self {
                $(Self::$variant $({ $($field),* })? $(( $($value),* ))? => {
                    out.push($tag);
                    $($($crate::encoding::field!(encode $field, out $(, $max)?);)*)?
                    $($($crate::encoding::field!(encode $value, out);)*)?
                })*
            }
        }
        $vis fn $decode(
            reader: &mut quorate_types::codec::Reader<'_>,
        ) -> Result<Self, quorate_types::codec::DecodeError> {
            match reader.u8()? {
                $($tag => {
                    $($(let $field = $crate::encoding::field!(decode $field, reader $(, $max, $least)?)?;)*)?
                    $($(let $value = $crate::encoding::field!(decode $value, reader)?;)*)?
                    Ok(Self::$variant $({ $($field),* })? $(( $($value),* ))?)
                })*
                _ => Err(quorate_types::codec::DecodeError::Tag($name)),
            }
        }
    };
}
pub(crate) use variant_functions;

/// Encodes or decodes one field.
macro_rules! field {
    (encode $value:expr, $out:ident) => {
        quorate_types::codec::Wire::encode($value, $out)
    };
    (encode $list:expr, $out:ident, $max:expr) => {
        quorate_types::codec::put_list($out, $list)
    };
    (decode $field:ident, $reader:ident) => {
        quorate_types::codec::Wire::decode($reader)
    };
    (decode $field:ident, $reader:ident, $max:expr, $least:expr) => {
        $reader.list(stringify!($field), $max, $least, quorate_types::codec::Wire::decode)
    };
}
pub(crate) use field;
