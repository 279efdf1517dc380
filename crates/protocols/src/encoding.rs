//! Encodings of enums that follow from a list of variants. One list serves both directions, so that they cannot differ.
//! Fields are those of [`wire_struct!`](quorate_types::wire_struct).

#[cfg(test)]
pub(crate) mod tests;

/// Encodes an enum as the tag of its variant and the fields of that variant in this order.
macro_rules! variants {
    ($type:ident $(<$($rules:ident: $bound:ident),*>)?, $name:literal: $($list:tt)*) => {
        impl $(<$($rules: $bound),*>)? quorate_types::codec::Wire for $type $(<$($rules),*>)? {
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
                    $($(quorate_types::wire_field!(encode $field, out $(, $max)?);)*)?
                    $($(quorate_types::wire_field!(encode $value, out);)*)?
                })*
            }
        }
        $vis fn $decode(
            reader: &mut quorate_types::codec::Reader<'_>,
        ) -> Result<Self, quorate_types::codec::DecodeError> {
            match reader.u8()? {
                $($tag => {
                    $($(let $field = quorate_types::wire_field!(decode $field, reader $(, $max, $least)?)?;)*)?
                    $($(let $value = quorate_types::wire_field!(decode $value, reader)?;)*)?
                    Ok(Self::$variant $({ $($field),* })? $(( $($value),* ))?)
                })*
                _ => Err(quorate_types::codec::DecodeError::Tag($name)),
            }
        }
    };
}
pub(crate) use variant_functions;
