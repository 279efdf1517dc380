//! # Echo
//!
//! The teaching protocol: a fixed leader proposes one block after the other, every replica votes once per height, and a
//! quorum of equal votes decides. Copy this folder to start a protocol of your own; `docs/adding-a-protocol.md` walks
//! through it.
//!
//! | model | replicas | quorum | good-case latency | paper |
//! |---|---|---|---|---|
//! | asynchrony for safety; a live leader for progress | n ≥ 3f + 1 | `quorum::byzantine` | 2 δ | none: Bracha's echo (1987) with a fixed leader is the nearest |
//!
//! It is marked [`Model::Teaching`]: no fault endangers agreement, but a leader that stops or lies stops the cluster,
//! because no replica takes its place.
//!
//! ## Flow
//! ```text
//! leader   propose ──┬─────────── vote ──┬── decide
//! backup             └─▶ (ready) ─ vote ─┼── decide      a vote goes to all
//! backup             └─▶ (ready) ─ vote ─┴── decide
//! every `ask_ms`: ASK for the first undecided height to all; each replica repeats its messages of that height
//! ```
//! Golden script: `scripts/01-good-case.txt`. Serial syncs: 2 (the leader before it proposes and votes, a backup before it
//! votes).
//!
//! ## Rules
//! | id | says | handler | test |
//! |---|---|---|---|
//! | E1 | only the leader proposes, and only a block with the right fields | `on_propose` | `e1_only_the_leader_proposes` |
//! | E2 | the first proposal of a height is the only one | `on_propose` | `e2_the_first_proposal_of_a_height_counts` |
//! | E3 | a replica votes only for a block that is ready and valid | `on_ready` | `e3_votes_when_ready_and_valid` |
//! | E4 | the record precedes the vote | `stand_by` | `e4_record_precedes_the_vote` |
//! | E5 | exactly a quorum of equal votes of distinct replicas decides | `on_vote` | `e5_a_quorum_of_equal_votes_decides` |
//! | E6 | a restarted replica repeats its earlier statements and makes no other ones | `open` | `e6_restart_repeats_the_same_statements` |
//! | E7 | lost messages are sent again to a replica that asks | `on_ask` | `e7_survives_the_loss_of_any_message` |
//! | E8 | messages outside the window are refused | `check_window` | `e8_messages_outside_the_window_are_refused` |
//!
//! ## Invariants
//! I1: no two blocks are decided at one height. Two quorums share an honest replica, which votes once per height: kept by
//! E4 and by the host's guard, watched by the agreement oracle.
//!
//! ## What survives a crash
//! [`StoodBy`] · before the proposal or vote leaves · else the replica would forget its promise: it could never send a
//! message of that height again, and a leader could never go on.
//!
//! ## Deviations from the paper
//! - Bracha's ready phase is missing: laggards get decided blocks by ASK and by the host's `Decided`.
//!
//! ## Not here
//! Bodies, the order of execution, checkpoints, client replies: see `quorate-replica`. Recovery after the loss of a disk: a
//! replica without its disk stays silent.

mod message;
mod record;
#[cfg(test)]
mod tests;

pub use message::EchoMessage;
pub use record::StoodBy;

use quorate_consensus::parts::tally::{Tallied, Tally};
use quorate_consensus::{
    CheckpointProof, Commit, Count, Cx, Examined, Figures, Healed, MessageRole, Model, OpenError, Past,
    Protocol, Ready, Reject, Spec, Status, To, Verified, Window, formula,
};
use quorate_types::{
    Block, BlockId, Committee, Digest, Floors, Height, ProtocolId, ReplicaId, Time, View, quorum,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The only proposer.
const LEADER: ReplicaId = ReplicaId(0);

/// Parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EchoParams {
    /// Milliseconds between two ASKs for the first undecided height; 10 to 60,000.
    pub ask_ms: u64,
}

impl Default for EchoParams {
    fn default() -> Self {
        Self { ask_ms: 1_000 }
    }
}

/// The only timer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// Send ASK for the first undecided height.
    Ask,
}

/// State of one height.
#[derive(Debug, Default)]
struct Progress {
    /// The leader's first proposal.
    proposed: Option<BlockId>,
    /// Block that this replica has voted for; recorded.
    stood_by: Option<BlockId>,
    votes: Tally<BlockId>,
    is_decided: bool,
}

/// State of one replica.
#[derive(Debug)]
pub struct Echo {
    ask_ns: u64,
    /// L, from genesis.
    window: u64,
    /// The last stable checkpoint: all heights up to it are settled.
    stable: Height,
    /// The last height of the gap-free run of decided heights.
    decided: Height,
    /// Heights above `stable`. Bounded by the window.
    heights: BTreeMap<Height, Progress>,
}

impl Protocol for Echo {
    const SPEC: Spec = Spec {
        name: ProtocolId::new("echo"),
        summary: "fixed leader, one vote; for teaching: a silent leader stops it",
        model: Model::Teaching,
        faults: quorum::byzantine_faults,
        checkpoint_quorum: quorum::byzantine,
        replies: |_, f| quorum::weak(f),
        votes_are_durable: true,
        votes_are_signed: false,
        local_validity: false,
        replaces_leader: false,
        rotates_leaders: false,
        first_view: View::ZERO,
        shared_params: &[],
        repeatable: &[],
        roles: &[(message::PROPOSE, MessageRole::Proposal), (message::VOTE, MessageRole::Vote)],
    };
    type Message = EchoMessage;
    type Timer = Timer;
    type Record = StoodBy;
    type Params = EchoParams;

    fn open(cx: &mut Cx<'_, Self>, params: EchoParams, past: Past<StoodBy>) -> Result<Self, OpenError> {
        let (n, f) = (cx.committee().n(), cx.committee().f);
        if f > quorum::byzantine_faults(n) {
            return Err(OpenError::Committee(format!("echo needs n >= 3f + 1, not n = {n}, f = {f}")));
        }
        if !(10..=60_000).contains(&params.ask_ms) {
            return Err(OpenError::Params { name: "ask_ms".to_owned(), expected: "10 to 60000".to_owned() });
        }
        let stable = past.checkpoint.checkpoint.height;
        let mut echo = Self {
            ask_ns: params.ask_ms.saturating_mul(1_000_000),
            window: past.window,
            stable,
            decided: stable.max(past.executed),
            heights: BTreeMap::new(),
        };
        for (height, _) in past.decided.into_iter().filter(|(height, _)| *height > stable) {
            echo.heights.entry(height).or_default().is_decided = true;
        }
        echo.advance();
        // E6: messages of undecided heights are sent again unchanged. The own copies bring the own votes back into the
        // count.
        for StoodBy { height, block } in past.records {
            echo.heights.entry(height).or_default().stood_by = Some(block);
            if height > echo.decided {
                echo.send_again(cx, To::All, height);
            }
        }
        echo.arm(cx);
        Ok(echo)
    }

    fn on_message(&mut self, cx: &mut Cx<'_, Self>, message: Verified<EchoMessage>) -> Result<(), Reject> {
        // `seal.by` is the author. The own copy of a message arrives here too, once the message is durable and sent.
        let (message, seal) = message.into_parts();
        match message {
            EchoMessage::Propose(block) => self.on_propose(cx, seal.by, block),
            EchoMessage::Vote { height, block } => self.on_vote(cx, seal.by, height, block),
            EchoMessage::Ask { height } => self.on_ask(cx, seal.by, height),
        }
    }

    fn on_timer(&mut self, cx: &mut Cx<'_, Self>, Timer::Ask: Timer) {
        // ASK promises nothing, so it need not wait for the disk.
        cx.send_unheld(To::All, EchoMessage::Ask { height: self.decided.next() });
        self.arm(cx);
    }

    fn on_ready(&mut self, cx: &mut Cx<'_, Self>, block: BlockId, how: Ready) {
        let Some(height) = cx.blocks().get(block).map(|block| block.height) else {
            return;
        };
        let Some(progress) = self.heights.get(&height) else {
            return;
        };
        // E3: an invalid block is invalid at every honest replica, so it never gets a quorum.
        if how == Ready::Valid && progress.proposed == Some(block) && progress.stood_by.is_none() {
            self.stand_by(cx, height, block);
        }
    }

    fn on_pending(&mut self, cx: &mut Cx<'_, Self>) {
        self.propose(cx);
    }

    fn on_executed(&mut self, cx: &mut Cx<'_, Self>, _height: Height, _fresh: u32) {
        // The host gives no payload while execution lags, so the leader tries again after each execution.
        self.propose(cx);
    }

    fn on_decided(&mut self, cx: &mut Cx<'_, Self>, height: Height, _block: BlockId) {
        if height > self.stable {
            self.heights.entry(height).or_default().is_decided = true;
            self.advance();
            self.propose(cx);
        }
    }

    fn on_checkpoint(&mut self, cx: &mut Cx<'_, Self>, proof: &CheckpointProof) {
        self.stable = self.stable.max(proof.checkpoint.height);
        self.heights = self.heights.split_off(&self.stable.next());
        self.advance();
        self.propose(cx);
    }

    fn window(&self) -> Window {
        Window {
            views: View::ZERO..View(1),
            heights: self.stable.next()..self.stable.plus(self.window).next(),
        }
    }

    fn floors(&self) -> Floors {
        Floors { height: self.stable.next(), views: Vec::new() }
    }

    fn status(&self) -> Status {
        Status { leader: LEADER, normal: true, committed: self.decided, ..Status::default() }
    }
}

impl Examined for Echo {
    const FIGURES: Option<Figures> = Some(Figures {
        block: &[
            Count { kind: message::PROPOSE, messages: formula!(|n| n - 1) },
            Count { kind: message::VOTE, messages: formula!(|n| n * (n - 1)) },
        ],
        commit_delays: formula!(2),
        commit_deltas: 0,
        spread: 0,
        reply_delays: formula!(4),
        serial_syncs: formula!(2),
        leader_change: None,
        idle: None,
        not_counted: &[message::ASK],
        remarks: &[
            "The leader's vote travels beside its proposal, so a block takes two delays and not three as in Bracha's broadcast.",
        ],
    });

    fn recovery(params: &EchoParams, _committee: &Committee, healed: &Healed) -> Time {
        // The client's retry, one ASK for the proposal, one for the votes, and one that came too early.
        let asks = params.ask_ms.saturating_mul(1_000_000).saturating_mul(4);
        let trips = healed.delta_ns.saturating_mul(12);
        Time(
            healed.client_retry_ns.saturating_add(asks).saturating_add(trips).saturating_add(healed.fetch_ns),
        )
    }

    fn exam_params(delta_ns: u64, _guarded: bool) -> EchoParams {
        EchoParams { ask_ms: (delta_ns / 125_000).clamp(50, 2_000) }
    }
}

impl Echo {
    /// Proposes the next height once the one before is decided, as the leader.
    fn propose(&mut self, cx: &mut Cx<'_, Self>) {
        let height = self.decided.next();
        let is_free = self.heights.get(&height).is_none_or(|progress| progress.stood_by.is_none());
        if cx.me() != LEADER || !is_free || self.check_window(height).is_err() {
            return;
        }
        // Without waiting requests there is no proposal; `on_pending` reports new ones.
        let Some(payload) = cx.payload_after(BlockId::ZERO) else {
            return;
        };
        let block = Block {
            parent: BlockId::ZERO,
            height,
            view: View::ZERO,
            proposer: LEADER,
            time_ns: payload.time_ns,
            payload: payload.id,
            extra: Digest::ZERO,
        };
        let id = block.id();
        cx.blocks().insert(block.clone());
        self.heights.entry(height).or_default().proposed = Some(id);
        // Proposal and vote wait for the record that `stand_by` writes. Held messages leave in order.
        self.stand_by(cx, height, id);
    }

    /// Votes for a block; the leader proposes it as well.
    fn stand_by(&mut self, cx: &mut Cx<'_, Self>, height: Height, block: BlockId) {
        self.heights.entry(height).or_default().stood_by = Some(block);
        // E4: the record first; messages sent after it are held until it is durable.
        cx.record(&StoodBy { height, block });
        self.send_again(cx, To::All, height);
    }

    /// Sends all own messages of a height again. Identical statements may be repeated any number of times.
    fn send_again(&self, cx: &mut Cx<'_, Self>, to: To, height: Height) {
        let Some(block) = self.heights.get(&height).and_then(|progress| progress.stood_by) else {
            return;
        };
        if cx.me() == LEADER
            && let Some(header) = cx.blocks().get(block).map(|block| Block::clone(block))
        {
            cx.send(to, EchoMessage::Propose(header));
        }
        cx.send(to, EchoMessage::Vote { height, block });
    }

    fn on_propose(&mut self, cx: &mut Cx<'_, Self>, by: ReplicaId, block: Block) -> Result<(), Reject> {
        // E1. Checks come first, cheap ones before others.
        if by != LEADER {
            return Err(Reject::WrongSender);
        }
        if by == cx.me() {
            return Ok(()); // The own copy: `propose` has done everything.
        }
        self.check_window(block.height)?;
        let fits = block.parent == BlockId::ZERO && block.view == View::ZERO && block.extra.is_zero();
        if !fits || block.proposer != LEADER {
            return Err(Reject::Invalid("block"));
        }
        let id = block.id();
        let progress = self.heights.entry(block.height).or_default();
        // E2: a restarted replica knows the first proposal from its record.
        match progress.proposed.or(progress.stood_by) {
            Some(first) if first != id => return Err(Reject::Equivocation),
            _ if progress.proposed.is_some() => return Err(Reject::Duplicate),
            _ => progress.proposed = Some(id),
        }
        cx.blocks().insert(block);
        match cx.ready(id) {
            Some(how) => self.on_ready(cx, id, how),
            None => cx.want(id, by), // Answered by `on_ready`.
        }
        Ok(())
    }

    fn on_vote(
        &mut self,
        cx: &mut Cx<'_, Self>,
        by: ReplicaId,
        height: Height,
        block: BlockId,
    ) -> Result<(), Reject> {
        self.check_window(height)?;
        let quorum = cx.committee().quorum();
        let progress = self.heights.entry(height).or_default();
        match progress.votes.add(block, by) {
            // E5: the tally counts each replica once, for the first value it votes for.
            Tallied::Counted(votes) if votes >= quorum && !progress.is_decided => {
                progress.is_decided = true;
                cx.commit(Commit::At(height, block));
                if cx.ready(block).is_none() {
                    cx.want(block, by);
                }
                self.advance();
                self.propose(cx);
                Ok(())
            }
            Tallied::Counted(_) => Ok(()),
            Tallied::Again if by == cx.me() => Ok(()), // An own vote that was sent again for a peer.
            Tallied::Again => Err(Reject::Duplicate),
            Tallied::Conflict(_) => Err(Reject::Equivocation),
        }
    }

    /// E7: answers an ASK with at most two messages, and remembers nothing of it.
    fn on_ask(&mut self, cx: &mut Cx<'_, Self>, by: ReplicaId, height: Height) -> Result<(), Reject> {
        self.send_again(cx, To::One(by), height);
        Ok(())
    }

    /// E8. The intake has checked the place already; a handler does not rely on it.
    fn check_window(&self, height: Height) -> Result<(), Reject> {
        if height <= self.stable {
            Err(Reject::Stale)
        } else if height.since(self.stable) > self.window {
            Err(Reject::Early)
        } else {
            Ok(())
        }
    }

    fn advance(&mut self) {
        self.decided = self.decided.max(self.stable);
        while self.heights.get(&self.decided.next()).is_some_and(|progress| progress.is_decided) {
            self.decided = self.decided.next();
        }
    }

    fn arm(&self, cx: &mut Cx<'_, Self>) {
        let at = cx.now().plus(self.ask_ns);
        cx.timers().set(Timer::Ask, at);
    }
}
