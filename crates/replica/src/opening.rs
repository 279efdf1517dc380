//! Opening a replica from the contents of its log.

use crate::amnesia::{Amnesia, BACK_KIND};
use crate::checkpoint::Checkpoints;
use crate::host_services::HostServices;
use crate::order::OrderQuestions;
use crate::outbox::Outbox;
use crate::output::Output;
use crate::peer_exchange::PeerExchange;
use crate::replica::{LoggedBlocks, Replica, RunningProtocol};
use crate::restored_log::RestoredLog;
use crate::sequencer::Sequencer;
use crate::setup::ReplicaSetup;
use crate::status::AlarmStatus;
use crate::synchrony::SynchronyGuard;
use crate::window::WindowCell;
use quorate_consensus::parts::block_tree::BlockTree;
use quorate_consensus::{Abstention, Entry, Env, OpenError, Past, Status};
use quorate_types::{BlockId, Digest, Floors, Genesis, Height, Incarnation, LogEntry, Time, View};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

impl Replica {
    /// Opens a replica on the contents of its log. Its first outputs write the new incarnation. The host makes them
    /// durable before it opens any link, so that no two incarnations share sequence numbers.
    ///
    /// # Errors
    /// Fails when the protocol refuses its parameters or committee, or the log contradicts itself.
    pub fn open(entry: &Entry, setup: ReplicaSetup, log: RestoredLog) -> Result<Self, OpenError> {
        let committee = Arc::clone(&setup.committee);
        let checkpoint_quorum = (entry.spec.checkpoint_quorum)(committee.n(), committee.f);
        let incarnation = log.incarnation.next();
        let (stable, executed) = (log.stable.clone(), log.executed);
        let above = stable.checkpoint.height.next();
        let decided: Vec<(Height, BlockId)> = log.decided.range(above..).map(|(h, id)| (*h, *id)).collect();

        let mut services = HostServices::new(&setup, synchrony_guard(entry, &setup, incarnation)?);
        services.note_executed(decided.iter().filter(|(height, _)| *height <= executed).map(|(_, id)| *id));
        let (mut blocks, ids) = restore_blocks(&log, &mut services);
        let mut out = VecDeque::new();
        let mut outbox = Outbox::restore(log.guard.clone(), log.floors.clone(), log.records.clone());
        let amnesia = (log.is_amnesiac && !outbox.is_back()).then(Amnesia::default);
        outbox.mute(amnesia.is_some());
        let forgotten =
            if amnesia.is_some() { Abstention::FOR_EVER.floors } else { outbox.forgotten().clone() };
        let past = protocol_past(&log, &setup.genesis, (&blocks, forgotten), decided.clone());
        outbox.persist(LogEntry::Incarnation(incarnation), &mut out);
        out.push_back(Output::Sync(outbox.appended()));

        let mut effects = Vec::new();
        let mut env = Env {
            now: Time::ZERO,
            me: setup.me,
            committee: &committee,
            blocks: &mut blocks,
            host: &mut services,
            effects: &mut effects,
        };
        let protocol = (entry.open)(&mut env, &setup.params, past)?;
        services.pool.rate.patience_ns = protocol.status().patience_ns;
        let running = RunningProtocol {
            protocol,
            effects,
            status: Status::default(),
            forwarded: View::ZERO,
            pending_changed: false,
            sent_role: None,
            window: Arc::new(WindowCell::default()),
        };
        let mut replica = Self {
            entry: *entry,
            incarnation,
            amnesia,
            awaits_state: log.awaits_state,
            running,
            blocks,
            services,
            outbox,
            sequencer: Sequencer::restore(executed, decided),
            peers: PeerExchange::new(&committee, setup.me, executed),
            checkpoints: Checkpoints::new(stable, setup.genesis.window, checkpoint_quorum),
            logged: LoggedBlocks { ids, kept: log.kept },
            orders: OrderQuestions::default(),
            alarms: AlarmStatus::default(),
            out,
            now: Time::ZERO,
            recorder: None,
            setup,
        };
        replica.note_restored_order();
        replica.sign_again(&log.states, above);
        replica.settle();
        Ok(replica)
    }

    /// Signs own checkpoints that are not stable again, because their signatures may never have left.
    fn sign_again(&mut self, states: &[(Height, Digest)], above: Height) {
        for (height, state) in states {
            if let Some(id) = self.sequencer.decided(*height).filter(|_| *height >= above)
                // A checkpoint names the view of its block. Without the block this replica does not know that view.
                && (self.blocks.get(id).is_some() || id == BlockId::null(*height))
            {
                self.sign_checkpoint(*height, id, *state);
            }
        }
    }
}

/// Returns the past with which the protocol is opened.
fn protocol_past(
    log: &RestoredLog,
    genesis: &Genesis,
    (blocks, forgotten): (&BlockTree, Floors),
    decided: Vec<(Height, BlockId)>,
) -> Past<Vec<u8>> {
    Past {
        // The host's own record is not the protocol's.
        records: log
            .records
            .iter()
            .filter(|(key, _)| key.kind != BACK_KIND)
            .map(|(_, record)| record.clone())
            .collect(),
        checkpoint: log.stable.clone(),
        blocks: blocks.iter().map(|(_, block)| (**block).clone()).collect(),
        executed: log.executed,
        decided,
        incarnation: log.incarnation.next(),
        window: genesis.window,
        checkpoint_every: genesis.checkpoint_every,
        forgotten,
    }
}

/// Returns the guard for the bound on delays; `None` where the protocol assumes none.
fn synchrony_guard(
    entry: &Entry,
    setup: &ReplicaSetup,
    incarnation: Incarnation,
) -> Result<Option<SynchronyGuard>, OpenError> {
    let bound = (entry.synchrony)(&setup.params)?;
    Ok(bound.map(|bound| SynchronyGuard::new(bound, setup.me, &setup.committee, incarnation, setup.secret)))
}

/// Returns the blocks above the stable checkpoint, and restores those bodies of theirs that the log has.
fn restore_blocks(log: &RestoredLog, services: &mut HostServices) -> (BlockTree, BTreeSet<BlockId>) {
    let stable = log.stable.checkpoint;
    let (mut blocks, mut logged) = (BlockTree::default(), BTreeSet::new());
    blocks.set_root(stable.block);
    for bundle in &log.bodies {
        services.pool.restore(bundle);
    }
    for (id, (block, payload)) in log.blocks.iter().filter(|(_, (block, _))| block.height > stable.height) {
        services.bodies.store_payload(&services.pool, &blocks, Arc::clone(payload));
        blocks.insert((**block).clone());
        if services.is_executed(id) {
            services.bodies.note_executed(*id);
        }
        logged.insert(*id);
    }
    services.bodies.executed(&blocks, log.executed);
    for id in blocks.take_fresh() {
        services.bodies.watch(&services.pool, &blocks, id);
    }
    (blocks, logged)
}
