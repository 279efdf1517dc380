//! Enums whose variants have names.

/// Defines an enum, the list of its variants, the name of each, and `Display` by that name.
macro_rules! named_enum {
    ($(#[$attribute:meta])* pub enum $type:ident {
        $($(#[$about:meta])* $variant:ident = $name:literal,)+
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum $type {
            $($(#[$about])* $variant,)+
        }

        impl $type {
            /// All of them, in the order of their definition.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the name on the command line, in documentation and in printed facts.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

pub(crate) use named_enum;
