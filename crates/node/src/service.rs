//! The service that a program replicates, and the `main` of a program that replicates one of its own.
//!
//! ```no_run
//! use quorate_node::service::{self, Service};
//!
//! fn main() -> std::process::ExitCode {
//!     // Any `Application + Default`; `quorate` itself runs this one.
//!     service::main(Service::of::<quorate_app::Kv>())
//! }
//! ```
//!
//! Such a program has the commands `testnet`, `node`, `up` and `status`. All nodes of a cluster run the same
//! program: genesis names the service, and a node of another one refuses to start.

use crate::commands::{node, status, testnet, up};
use crate::exit::{self, Failure};
use clap::{Parser, Subcommand};
use quorate_app::{Application, Kv};
use std::process::ExitCode;

/// A service that can be replicated: how an application is made that nothing was applied to yet.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    open: fn() -> Box<dyn Application>,
}

impl Service {
    /// The key-value store.
    pub const KV: Self = Self::of::<Kv>();

    /// The service of an application whose default is its first state, the same at every replica.
    #[must_use]
    pub const fn of<A: Application + Default + 'static>() -> Self {
        Self { open: || Box::new(A::default()) }
    }

    /// An application in its first state.
    #[must_use]
    pub fn open(&self) -> Box<dyn Application> {
        (self.open)()
    }

    /// Name and version, as genesis has them.
    #[must_use]
    pub fn name(&self) -> String {
        let application = self.open();
        format!("{} {}", application.name(), application.version())
    }

    /// Path of the key of the client that is registered from the start, inside the folder of a cluster.
    #[must_use]
    pub fn client_key(&self) -> String {
        format!("clients/{}.key", self.open().name())
    }

    /// Whether the application's name can be part of a path and is not taken.
    pub(crate) fn check_name(&self) -> Result<(), Failure> {
        let application = self.open();
        let name = application.name();
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || name == "admin" || !name.bytes().all(fits) {
            return Err(Failure::usage(format!(
                "an application's name is made of a-z, 0-9 and -, and is not \"admin\"; {name:?} is not such a name"
            )));
        }
        Ok(())
    }
}

/// The commands that are the same whatever is replicated.
#[derive(Subcommand)]
pub enum Command {
    /// Make a cluster: keys, configuration, one formatted folder for each node
    Testnet(testnet::Args),
    /// Run one replica
    Node(node::Args),
    /// Run a local cluster until Ctrl-C, one process per replica
    Up(up::Args),
    /// Say what the replicas of a cluster are doing
    Status(status::StatusArgs),
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// As the command says.
    pub fn run(&self, service: Service) -> Result<(), Failure> {
        match self {
            Self::Testnet(args) => testnet::run(args, service),
            Self::Node(args) => node::run(args, service),
            Self::Up(args) => up::run(args, service),
            Self::Status(args) => status::run(args),
        }
    }
}

/// A replicated service that goes on, correctly, while up to f of its replicas fail or lie
#[derive(Parser)]
#[command(arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What a program does that replicates `service`: reads the command line and runs the command.
#[must_use]
pub fn main(service: Service) -> ExitCode {
    exit::main(|cli: Cli| cli.command.run(service))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_app::{At, RestoreError, Snapshot};
    use quorate_types::Digest;

    /// An application of which nothing but the name is of interest.
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
    named!(Elsewhere, "../kv");
    named!(Admin, "admin");
    named!(Nameless, "");

    #[test]
    fn a_service_is_known_by_its_application() {
        let good = Service::of::<Good>();
        assert_eq!(
            (good.name().as_str(), good.client_key().as_str()),
            ("lock-service2 7", "clients/lock-service2.key")
        );
        assert_eq!(good.check_name(), Ok(()));
        assert_eq!(Service::KV.client_key(), crate::testnet::KV_KEY);
        assert_eq!(Service::KV.check_name(), Ok(()));
    }

    #[test]
    fn names_that_are_no_part_of_a_path_are_refused() {
        for bad in [Service::of::<Elsewhere>(), Service::of::<Admin>(), Service::of::<Nameless>()] {
            assert_eq!(bad.check_name().unwrap_err().code(), 2);
        }
    }
}
