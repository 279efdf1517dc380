//! The application behind its queue: executes decided blocks in order, and answers for bundles that were executed.

use quorate_app::{Execution, Snapshot};
use quorate_replica::{Admission, Admit};
use quorate_types::codec::Wire as _;
use quorate_types::{
    Bundle, BundleKind, BundleNo, Digest, Executed, FullBlock, Height, Outcome, ReplicaId, ReplyBundle,
    SessionId, View,
};
use std::collections::VecDeque;
use std::sync::Arc;

/// The time of an executed block, as the block has it and as the application saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// Height of the block.
    pub height: Height,
    /// Proposer of the block.
    pub proposer: ReplicaId,
    /// Nanoseconds since 1970 in the block, by the proposer's clock.
    pub block_ns: u64,
    /// Nanoseconds since 1970 as the application saw them: `quorate_app::At::time_ns`.
    pub application_ns: u64,
}

/// See the module.
pub struct Executor {
    execution: Execution,
    waiting: VecDeque<FullBlock>,
    /// The replica's view and leader, for repeated replies.
    pub(crate) view: View,
    pub(crate) leader: ReplicaId,
    requests: u64,
    bundles: u64,
    blocks: u64,
    /// The last block with bundles of each proposer since the last [`Executor::clear_stamps`]: at most one for each replica.
    stamps: Vec<Stamp>,
}

impl Executor {
    pub(crate) fn new(execution: Execution) -> Self {
        Self {
            execution,
            waiting: VecDeque::new(),
            view: View::ZERO,
            leader: ReplicaId(0),
            requests: 0,
            bundles: 0,
            blocks: 0,
            stamps: Vec::new(),
        }
    }

    /// Returns the application and its sessions.
    #[must_use]
    pub fn execution(&self) -> &Execution {
        &self.execution
    }

    /// Returns the application and its sessions, to compute digests.
    pub fn execution_mut(&mut self) -> &mut Execution {
        &mut self.execution
    }

    /// Returns the requests, bundles and blocks that were executed since the start.
    #[must_use]
    pub fn counts(&self) -> (u64, u64, u64) {
        (self.requests, self.bundles, self.blocks)
    }

    /// Returns the last block with bundles of each proposer since [`Self::clear_stamps`]. Empty blocks have no time.
    #[must_use]
    pub fn stamps(&self) -> &[Stamp] {
        &self.stamps
    }

    /// Drops the stamps so far.
    pub fn clear_stamps(&mut self) {
        self.stamps.clear();
    }

    pub(crate) fn push(&mut self, block: FullBlock) {
        self.waiting.push_back(block);
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Executes the next block of the queue.
    pub(crate) fn run_one(&mut self) -> Option<Executed> {
        let block = self.waiting.pop_front()?;
        let executed = self.execution.execute(&block);
        self.requests = self.requests.wrapping_add(u64::from(executed.fresh()));
        self.bundles = self.bundles.wrapping_add(u64::try_from(executed.bundles.len()).unwrap_or(0));
        self.blocks = self.blocks.wrapping_add(1);
        self.stamp(&block);
        Some(executed)
    }

    fn stamp(&mut self, block: &FullBlock) {
        let Some(header) = block.block.as_ref().filter(|_| !block.bundles.is_empty()) else { return };
        let stamp = Stamp {
            height: block.height,
            proposer: header.proposer,
            block_ns: header.time_ns,
            application_ns: self.execution.time_ns(),
        };
        match self.stamps.iter_mut().find(|known| known.proposer == stamp.proposer) {
            Some(known) => *known = stamp,
            None => self.stamps.push(stamp),
        }
    }

    pub(crate) fn height(&self) -> Height {
        self.execution.height()
    }

    pub(crate) fn snapshot(&mut self) -> Snapshot {
        self.execution.snapshot()
    }

    fn kept(&self, bundle: &Bundle, session: SessionId, number: BundleNo) -> Admission {
        match self.execution.kept(session, number) {
            // The kept reply is for another content under this number: the client would take it for a lie.
            Some(kept) if kept.bundle != bundle.digest() => Admission::NumberReused,
            Some(kept) => self.reply(bundle, kept.result, Arc::clone(&kept.outcome)),
            None => Admission::Forgotten,
        }
    }

    /// Returns the reply to a request for a session that is open already, equal to the reply if it were ordered again.
    fn opened(&self, bundle: &Bundle, session: SessionId) -> Admission {
        let outcome: Arc<[u8]> = Outcome::Opened(session).to_bytes().into();
        self.reply(bundle, ReplyBundle::result_digest(&outcome), outcome)
    }

    fn reply(&self, bundle: &Bundle, result: Digest, outcome: Arc<[u8]>) -> Admission {
        Admission::Executed(Box::new(ReplyBundle {
            session: bundle.session(),
            number: bundle.number(),
            bundle: bundle.digest(),
            result,
            outcome,
            view: self.view,
            leader: self.leader,
        }))
    }
}

impl Admit for Executor {
    fn admit(&self, bundle: &Bundle) -> Admission {
        let client = bundle.client();
        if bundle.kind() == BundleKind::Open {
            return match self.execution.opened(&client, bundle.number()) {
                Some(session) => self.opened(bundle, session),
                None if self.execution.registered(&client) => Admission::New,
                None => Admission::NotRegistered,
            };
        }
        let (session, number) = (bundle.session(), bundle.number());
        match self.execution.session(session) {
            Some(view) if view.owner == client => {
                if self.execution.executed(session, number) {
                    self.kept(bundle, session, number)
                } else if number > view.ceiling {
                    Admission::OutOfWindow
                } else {
                    Admission::New
                }
            }
            None if session.height > self.execution.height() => Admission::Behind,
            _ => Admission::NoSession,
        }
    }
}
