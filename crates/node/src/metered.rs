//! An application with its own count of allocations, which separates them from those of the replica.

use crate::alloc::in_application;
use quorate_app::{Application, At, RestoreError, Snapshot};
use quorate_types::Digest;

/// An application that counts its allocations.
pub(crate) struct MeteredApplication(pub(crate) Box<dyn Application>);

impl Application for MeteredApplication {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn version(&self) -> u32 {
        self.0.version()
    }

    fn apply(&mut self, at: &At, op: &[u8], reply: &mut Vec<u8>) {
        in_application(|| self.0.apply(at, op, reply));
    }

    fn query(&self, op: &[u8], room: usize, reply: &mut Vec<u8>) {
        in_application(|| self.0.query(op, room, reply));
    }

    fn digest(&mut self) -> Digest {
        in_application(|| self.0.digest())
    }

    fn snapshot(&mut self) -> Snapshot {
        in_application(|| self.0.snapshot())
    }

    fn restore(
        &mut self,
        header: &[u8],
        chunks: &mut dyn Iterator<Item = Vec<u8>>,
    ) -> Result<(), RestoreError> {
        in_application(|| self.0.restore(header, chunks))
    }
}
