//! The service that a program replicates.

use crate::exit::Failure;
use quorate_app::{Application, Kv};

/// A service that can be replicated: the constructor of its application.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    open: fn() -> Box<dyn Application>,
}

impl Service {
    /// The key-value store.
    pub const KV: Self = Self::of::<Kv>();

    /// Returns the service of an application whose default is its first state, equal at every replica.
    #[must_use]
    pub const fn of<A: Application + Default + 'static>() -> Self {
        Self { open: || Box::new(A::default()) }
    }

    /// Returns an application in its first state.
    #[must_use]
    pub fn open(&self) -> Box<dyn Application> {
        (self.open)()
    }

    /// Returns name and version, as genesis has them.
    #[must_use]
    pub fn name(&self) -> String {
        let application = self.open();
        format!("{} {}", application.name(), application.version())
    }

    /// Returns the path, inside the folder of a cluster, of the key of the client that is registered from the start.
    #[must_use]
    pub fn client_key(&self) -> String {
        format!("clients/{}.key", self.open().name())
    }

    /// Checks that the application's name can be part of a path and is not reserved.
    pub(crate) fn check_name(&self) -> Result<(), Failure> {
        let application = self.open();
        let name = application.name();
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || name == "admin" || !name.bytes().all(fits) {
            return Err(Failure::usage(format!(
                "the application's name is {name:?}; expected a name of a-z, 0-9 and - other than \"admin\"; rename it"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_app::{At, RestoreError, Snapshot};
    use quorate_types::Digest;

    /// An application with a name and no function.
    macro_rules! named {
        ($type:ident, $name:literal) => {
            #[derive(Default)]
            struct $type;
            impl Application for $type {
                fn name(&self) -> &'static str {
                    $name
                }
                fn version(&self) -> u32 {
                    7
                }
                fn apply(&mut self, _: &At, _: &[u8], _: &mut Vec<u8>) {}
                fn query(&self, _: &[u8], _: usize, _: &mut Vec<u8>) {}
                fn digest(&mut self) -> Digest {
                    Digest::ZERO
                }
                fn snapshot(&mut self) -> Snapshot {
                    Snapshot::default()
                }
                fn restore(
                    &mut self,
                    _: &[u8],
                    _: &mut dyn Iterator<Item = Vec<u8>>,
                ) -> Result<(), RestoreError> {
                    Ok(())
                }
            }
        };
    }
    named!(Good, "lock-service2");
    named!(OutsidePath, "../kv");
    named!(Admin, "admin");
    named!(Nameless, "");

    #[test]
    fn service_has_the_name_of_its_application() {
        let good = Service::of::<Good>();
        assert_eq!(
            (good.name().as_str(), good.client_key().as_str()),
            ("lock-service2 7", "clients/lock-service2.key")
        );
        assert_eq!(good.check_name(), Ok(()));
        assert_eq!(Service::KV.client_key(), crate::layout::KV_KEY);
        assert_eq!(Service::KV.check_name(), Ok(()));
    }

    #[test]
    fn name_that_cannot_be_part_of_a_path_is_refused() {
        for bad in [Service::of::<OutsidePath>(), Service::of::<Admin>(), Service::of::<Nameless>()] {
            assert_eq!(bad.check_name().unwrap_err().code(), 2);
        }
    }
}
