//! Encodings that follow from a list of fields. One list serves both directions, so that they cannot differ.

/// Encodes a struct as its fields in this order.
macro_rules! fields {
    ($type:ident { $($field:ident),* }) => {
        impl quorate_types::codec::Wire for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                $(quorate_types::codec::Wire::encode(&self.$field, out);)*
            }
            fn decode(
                reader: &mut quorate_types::codec::Reader<'_>,
            ) -> Result<Self, quorate_types::codec::DecodeError> {
                $(let $field = quorate_types::codec::Wire::decode(reader)?;)*
                Ok(Self { $($field),* })
            }
        }
    };
}
pub(super) use fields;

/// Encodes an enum as the tag of its variant and the fields of that variant in this order.
macro_rules! variants {
    ($type:ident, $name:literal: $($tag:tt = $variant:ident
        $({ $($field:ident),* })? $(( $($value:ident),* ))?,)*) => {
        impl quorate_types::codec::Wire for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant $({ $($field),* })? $(( $($value),* ))? => {
                        out.push($tag);
                        $($(quorate_types::codec::Wire::encode($field, out);)*)?
                        $($(quorate_types::codec::Wire::encode($value, out);)*)?
                    })*
                }
            }
            fn decode(
                reader: &mut quorate_types::codec::Reader<'_>,
            ) -> Result<Self, quorate_types::codec::DecodeError> {
                match reader.u8()? {
                    $($tag => {
                        $($(let $field = quorate_types::codec::Wire::decode(reader)?;)*)?
                        $($(let $value = quorate_types::codec::Wire::decode(reader)?;)*)?
                        Ok(Self::$variant $({ $($field),* })? $(( $($value),* ))?)
                    })*
                    _ => Err(quorate_types::codec::DecodeError::Tag($name)),
                }
            }
        }
    };
}
pub(super) use variants;
