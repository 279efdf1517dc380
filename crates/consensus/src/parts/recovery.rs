//! Recovery of a replica of a synchronous protocol (`sync-hotstuff` §18): at its first start, after a restart, after a
//! cold start of all replicas, and after links have lost messages for good.
//!
//! A crash may take unsynced records with it, and messages that peers sent meanwhile are missing. The replica asks its
//! peers and signs nothing until enough have answered. It commits by no timer until the other replicas have recovered.

use super::answer_quota::AnswerQuota;
use super::synchrony::{Delta, SynchronyParams};
use quorate_types::codec::{DecodeError, Reader, Wire};
use quorate_types::{Committee, Incarnation, ReplicaId, ReplicaSet, Time};
use std::collections::BTreeMap;

/// Questions of one peer that are answered within Δ: it asks at once, again when its link is up, and each Δ.
const ANSWERS_MAX: u32 = 4;

/// Actions that a replica may take.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RecoveryStage {
    /// Handle, answer, fetch, relay. The replica signs nothing and sets no timer of the protocol.
    Silent,
    /// Everything but commit by a timer.
    Voting,
    /// Everything.
    Running,
}

impl Wire for RecoveryStage {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Self::Silent => 0,
            Self::Voting => 1,
            Self::Running => 2,
        });
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.u8()? {
            0 => Ok(Self::Silent),
            1 => Ok(Self::Voting),
            2 => Ok(Self::Running),
            _ => Err(DecodeError::Tag("recovery stage")),
        }
    }
}

/// Answers of peers since this replica became silent, and the stage that they allow.
#[derive(Debug)]
pub struct Recovery {
    delta: Delta,
    boot_wait_ns: u64,
    stage: RecoveryStage,
    /// Time at which this replica became silent.
    opened: Time,
    /// Time since which all reachable peers are being asked.
    asked: Time,
    /// Time of the next question to peers that have not answered.
    ask_at: Time,
    /// Stages that peers have reported since this replica became silent.
    reported: BTreeMap<ReplicaId, RecoveryStage>,
    /// Peers that have been connected since then.
    connected: ReplicaSet,
    /// Peers with messages lost for good that have not answered since.
    gaps: ReplicaSet,
    incarnation: Incarnation,
    /// Whether this replica has signed anything since it was opened or fell silent.
    pub(super) has_begun: bool,
    /// Answers to recovering peers.
    pub(super) quota: AnswerQuota,
    /// Time of the last question to all peers.
    pub(super) asked_all_at: Time,
}

impl Recovery {
    /// Recovery of a replica that has just been opened: it is silent and has asked nobody yet.
    #[must_use]
    pub fn open(params: &SynchronyParams, incarnation: Incarnation, now: Time) -> Self {
        Self {
            delta: params.delta(),
            boot_wait_ns: params.boot_wait_ns(),
            stage: RecoveryStage::Silent,
            opened: now,
            asked: now,
            ask_at: now,
            reported: BTreeMap::new(),
            connected: ReplicaSet::EMPTY,
            gaps: ReplicaSet::EMPTY,
            incarnation,
            has_begun: false,
            quota: AnswerQuota::new(ANSWERS_MAX),
            asked_all_at: now,
        }
    }

    /// Number of this opening, which questions carry.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Time of the last question to all peers.
    #[must_use]
    pub fn asked_all_at(&self) -> Time {
        self.asked_all_at
    }

    /// Whether an answer is to this incarnation, or to nobody's question.
    #[must_use]
    pub fn is_answered(&self, incarnation: Incarnation) -> bool {
        incarnation == Incarnation::ZERO || incarnation == self.incarnation
    }

    /// Stage of this replica.
    #[must_use]
    pub fn stage(&self) -> RecoveryStage {
        self.stage
    }

    /// Whether this replica may sign nothing.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.stage == RecoveryStage::Silent
    }

    /// Notes an answer, or a report that the stage of a peer has changed.
    pub fn note_answer(&mut self, peer: ReplicaId, stage: RecoveryStage) {
        self.gaps.remove(peer);
        self.reported.insert(peer, stage);
    }

    /// Notes an answer that left something out: the gap of its sender stays.
    pub fn note_partial_answer(&mut self, peer: ReplicaId, stage: RecoveryStage) {
        self.reported.insert(peer, stage);
    }

    /// Notes that a peer is connected. True when the peer must be asked now: earlier questions may still be on their way.
    pub fn note_connected(&mut self, peer: ReplicaId, now: Time) -> bool {
        let is_first = self.is_silent() && self.connected.insert(peer);
        if is_first {
            self.asked = now;
        }
        is_first
    }

    /// Notes that a message of a peer is lost for good. True when this replica becomes silent for it: more than f such
    /// peers may have sent what it must know. One liar must not silence it.
    pub fn note_gap(&mut self, peer: ReplicaId, committee: &Committee, now: Time) -> bool {
        self.gaps.insert(peer);
        // An earlier answer may be older than the lost message.
        self.ask_at = now;
        if self.is_silent() {
            self.reported.remove(&peer);
        }
        let silences = !self.is_silent() && self.gaps.len() >= committee.weak();
        if silences {
            self.stage = RecoveryStage::Silent;
            self.has_begun = false;
            (self.opened, self.asked, self.ask_at) = (now, now, now);
            self.reported.clear();
        }
        silences
    }

    /// Returns the peers to ask now. Every Δ these are the peers that have not answered or are silent, and those with a gap.
    pub fn peers_to_ask(&mut self, committee: &Committee, me: ReplicaId, now: Time) -> ReplicaSet {
        if now < self.ask_at {
            return ReplicaSet::EMPTY;
        }
        self.ask_at = now.plus(self.delta.times(1));
        let is_open = |peer: &ReplicaId| {
            let has_recovered = self.reported.get(peer).is_some_and(|stage| *stage > RecoveryStage::Silent);
            self.gaps.contains(*peer) || (self.stage < RecoveryStage::Running && !has_recovered)
        };
        committee.others(me).filter(is_open).collect()
    }

    /// Returns the next stage, if it may be entered now.
    #[must_use]
    pub fn next_stage(&self, committee: &Committee, now: Time) -> Option<RecoveryStage> {
        match self.stage {
            RecoveryStage::Silent if self.can_follow(committee, now) => Some(RecoveryStage::Running),
            RecoveryStage::Silent if self.may_vote(committee, now) => Some(RecoveryStage::Voting),
            RecoveryStage::Voting if self.can_follow(committee, now) || self.may_run(committee, now) => {
                Some(RecoveryStage::Running)
            }
            _ => None,
        }
    }

    /// Enters the next stage, if it may be entered now, and returns it.
    pub fn advance(&mut self, committee: &Committee, now: Time) -> Option<RecoveryStage> {
        let next = self.next_stage(committee, now)?;
        self.stage = next;
        Some(next)
    }

    /// Rule (a): f + 1 peers run, so an honest one does. All messages that honest replicas had sent when they were asked
    /// have arrived.
    fn can_follow(&self, committee: &Committee, now: Time) -> bool {
        let running = self.reported.values().filter(|stage| **stage == RecoveryStage::Running).count();
        running >= committee.weak() && now >= self.asked.plus(self.delta.times(2))
    }

    fn may_vote(&self, committee: &Committee, now: Time) -> bool {
        let (others, answers) = (committee.n().saturating_sub(1), self.reported.len());
        // A peer that was reached just now has time to answer. Its earlier messages arrive from others before it fails.
        let is_heard = now >= self.asked.plus(self.delta.times(2));
        // (b): nobody is missing. (c): a replica that is missing now does not recover with its disk.
        let has_recovered = answers >= committee.honest_others() && now >= self.wait_over(1);
        is_heard && (answers >= others || has_recovered)
    }

    fn may_run(&self, committee: &Committee, now: Time) -> bool {
        let others = committee.n().saturating_sub(1);
        let voting = self.reported.values().filter(|stage| **stage >= RecoveryStage::Voting).count();
        voting >= others || now >= self.wait_over(2)
    }

    /// Returns the end of `waits` boot waits, and of 2 Δ for the answers.
    fn wait_over(&self, waits: u64) -> Time {
        self.opened.plus(self.boot_wait_ns.saturating_mul(waits)).plus(self.delta.times(2))
    }

    /// Returns when time alone may change something. That is not after `now` while a question is due.
    #[must_use]
    pub fn deadline(&self, now: Time) -> Option<Time> {
        let waits = match self.stage {
            RecoveryStage::Silent => [self.asked.plus(self.delta.times(2)), self.wait_over(1)],
            RecoveryStage::Voting => [self.asked.plus(self.delta.times(2)), self.wait_over(2)],
            RecoveryStage::Running if self.gaps.is_empty() => return None,
            RecoveryStage::Running => [self.ask_at; 2],
        };
        // The caller has acted on waits that are over, but not yet on a due question: an answer that arrives just then must
        // not postpone that question for ever.
        waits.into_iter().filter(|at| *at > now).chain([self.ask_at]).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::{ClusterId, Epoch, Member, ProtocolId, PublicKey};

    const MS: u64 = 1_000_000;

    fn committee(n: usize, f: usize) -> Committee {
        let member = Member { sign: PublicKey::default(), link: PublicKey::default() };
        Committee {
            cluster: ClusterId::ZERO,
            protocol: ProtocolId::new("test"),
            epoch: Epoch(0),
            f,
            members: vec![member; n],
        }
    }

    /// Δ is 10 ms, the boot wait 1 s.
    fn params() -> SynchronyParams {
        SynchronyParams { delta_ms: 10, boot_wait_ms: 1_000, drift_ppm: 0, ..SynchronyParams::default() }
    }

    fn opened() -> Recovery {
        Recovery::open(&params(), Incarnation(1), Time::ZERO)
    }

    fn at(ms: u64) -> Time {
        Time(ms * MS)
    }

    fn peer(id: u16) -> ReplicaId {
        ReplicaId(id)
    }

    #[test]
    fn all_replicas_vote_once_all_have_answered() {
        let (committee, mut recovery) = (committee(3, 1), opened());
        recovery.note_answer(peer(1), RecoveryStage::Silent);
        assert_eq!(recovery.advance(&committee, at(900)), None);
        recovery.note_answer(peer(2), RecoveryStage::Silent);
        assert_eq!(recovery.advance(&committee, at(901)), Some(RecoveryStage::Voting));
        assert_eq!(recovery.advance(&committee, at(902)), None);
        recovery.note_answer(peer(1), RecoveryStage::Voting);
        recovery.note_answer(peer(2), RecoveryStage::Voting);
        assert_eq!(recovery.advance(&committee, at(903)), Some(RecoveryStage::Running));
    }

    /// Six replicas with f = 2. Before a wait is over all five others count, and not f + 1 or n - f of them.
    #[test]
    fn one_missing_peer_is_waited_for_where_n_is_larger_than_2f_plus_1() {
        let (committee, mut recovery) = (committee(6, 2), opened());
        (1..=4).for_each(|id| recovery.note_answer(peer(id), RecoveryStage::Silent));
        assert_eq!(recovery.advance(&committee, at(900)), None);
        recovery.note_answer(peer(5), RecoveryStage::Silent);
        assert_eq!(recovery.advance(&committee, at(901)), Some(RecoveryStage::Voting));
        (1..=4).for_each(|id| recovery.note_answer(peer(id), RecoveryStage::Voting));
        assert_eq!(recovery.advance(&committee, at(902)), None);
        recovery.note_answer(peer(5), RecoveryStage::Voting);
        assert_eq!(recovery.advance(&committee, at(903)), Some(RecoveryStage::Running));
    }

    /// A peer may have been reached just now. Another peer, which fails next, may have missed its votes.
    #[test]
    fn peer_that_connects_late_is_waited_for_even_when_all_have_answered() {
        let (committee, mut recovery) = (committee(3, 1), opened());
        recovery.note_answer(peer(1), RecoveryStage::Silent);
        assert!(recovery.note_connected(peer(2), at(500)));
        recovery.note_answer(peer(2), RecoveryStage::Silent);
        assert_eq!(recovery.advance(&committee, at(519)), None);
        assert!(recovery.deadline(at(519)).is_some_and(|next| next <= at(520)));
        assert_eq!(recovery.advance(&committee, at(520)), Some(RecoveryStage::Voting));
    }

    #[test]
    fn replica_follows_f_plus_1_running_peers() {
        let (committee, mut recovery) = (committee(3, 1), opened());
        recovery.note_answer(peer(1), RecoveryStage::Running);
        assert_eq!(recovery.advance(&committee, at(500)), None, "it may lie");
        let (committee, mut recovery) = (self::committee(5, 2), opened());
        (1..=3).for_each(|id| recovery.note_answer(peer(id), RecoveryStage::Running));
        assert_eq!(recovery.peers_to_ask(&committee, peer(0), at(19)).len(), 1, "one has not answered");
        assert_eq!(recovery.advance(&committee, at(19)), None);
        assert_eq!(recovery.deadline(at(19)), Some(at(20)));
        assert_eq!(recovery.advance(&committee, at(20)), Some(RecoveryStage::Running));
    }

    /// Six replicas with f = 2: f + 1 is neither n - f, nor a quorum, nor n.
    #[test]
    fn f_plus_1_peers_count_where_n_is_larger_than_2f_plus_1() {
        let (committee, mut recovery) = (committee(6, 2), opened());
        (1..=2).for_each(|id| recovery.note_answer(peer(id), RecoveryStage::Running));
        assert_eq!(recovery.advance(&committee, at(20)), None, "both may lie");
        recovery.note_answer(peer(3), RecoveryStage::Running);
        assert_eq!(recovery.advance(&committee, at(20)), Some(RecoveryStage::Running));
        assert!((1..=2).all(|id| !recovery.note_gap(peer(id), &committee, at(30))), "both may lie");
        assert!(recovery.note_gap(peer(3), &committee, at(30)));
        // Of the others, n - f - 1 are honest: so many answers end the wait for the rest.
        (1..=2).for_each(|id| recovery.note_answer(peer(id), RecoveryStage::Silent));
        assert_eq!(recovery.advance(&committee, at(1_050)), None);
        recovery.note_answer(peer(3), RecoveryStage::Silent);
        assert_eq!(recovery.advance(&committee, at(1_050)), Some(RecoveryStage::Voting));
    }

    #[test]
    fn late_connection_restarts_the_wait_once() {
        let (committee, mut recovery) = (committee(5, 2), opened());
        assert!(recovery.note_connected(peer(1), at(15)) && !recovery.note_connected(peer(1), at(17)));
        (1..=3).for_each(|id| recovery.note_answer(peer(id), RecoveryStage::Running));
        assert_eq!(recovery.advance(&committee, at(34)), None);
        assert_eq!(recovery.advance(&committee, at(35)), Some(RecoveryStage::Running));
    }

    #[test]
    fn missing_peer_is_waited_for_during_the_boot_wait_only() {
        let (committee, mut recovery) = (committee(3, 1), opened());
        recovery.note_answer(peer(1), RecoveryStage::Silent);
        assert_eq!(recovery.advance(&committee, at(1_019)), None);
        assert_eq!(recovery.advance(&committee, at(1_020)), Some(RecoveryStage::Voting));
        recovery.note_answer(peer(1), RecoveryStage::Voting);
        assert_eq!(recovery.advance(&committee, at(2_019)), None);
        assert_eq!(recovery.advance(&committee, at(2_020)), Some(RecoveryStage::Running));
        let mut alone = opened();
        assert_eq!(alone.advance(&committee, at(60_000)), None, "nobody has answered");
    }

    /// The peer was opened in time and had to be dialled.
    #[test]
    fn peer_that_connects_at_the_last_moment_has_time_to_answer() {
        let (committee, mut recovery) = (committee(3, 1), opened());
        recovery.note_answer(peer(1), RecoveryStage::Silent);
        assert!(recovery.note_connected(peer(2), at(1_019)));
        assert_eq!(recovery.peers_to_ask(&committee, peer(0), at(1_030)).len(), 2);
        assert_eq!(recovery.advance(&committee, at(1_038)), None);
        assert_eq!(recovery.deadline(at(1_038)), Some(at(1_039)));
        assert_eq!(recovery.advance(&committee, at(1_039)), Some(RecoveryStage::Voting));
    }

    #[test]
    fn peers_that_have_not_answered_are_asked_again() {
        let (committee, mut recovery) = (committee(3, 1), opened());
        let ask = |recovery: &mut Recovery, ms| recovery.peers_to_ask(&committee, peer(0), at(ms)).len();
        assert_eq!((ask(&mut recovery, 0), ask(&mut recovery, 9)), (2, 0));
        recovery.note_answer(peer(1), RecoveryStage::Running);
        assert_eq!(ask(&mut recovery, 10), 1);
    }

    /// Answers arrive at any time, those of a liar also unasked.
    #[test]
    fn answers_do_not_postpone_due_questions() {
        let (committee, mut recovery) = (committee(3, 1), opened());
        assert_eq!(recovery.peers_to_ask(&committee, peer(0), at(0)).len(), 2);
        for ms in [10, 11, 20, 500] {
            recovery.note_answer(peer(1), RecoveryStage::Silent);
            assert_eq!(recovery.advance(&committee, at(ms)), None);
            assert_eq!(recovery.deadline(at(ms)), Some(at(10)), "the question was due and is still unasked");
        }
        assert_eq!(recovery.peers_to_ask(&committee, peer(0), at(501)).len(), 2);
        assert_eq!(recovery.deadline(at(501)), Some(at(511)));
    }

    #[test]
    fn gaps_with_more_than_f_peers_silence_a_replica() {
        let (committee, mut recovery) = (committee(3, 1), opened());
        for id in [1, 2] {
            recovery.note_answer(peer(id), RecoveryStage::Running);
        }
        assert_eq!(recovery.advance(&committee, at(20)), Some(RecoveryStage::Running));
        assert_eq!(recovery.deadline(at(20)), None);
        assert!(!recovery.note_gap(peer(1), &committee, at(30)));
        assert_eq!(recovery.peers_to_ask(&committee, peer(0), at(30)).len(), 1);
        recovery.note_answer(peer(1), RecoveryStage::Running);
        assert!(!recovery.note_gap(peer(2), &committee, at(40)), "the first has answered since");
        assert!(recovery.note_gap(peer(1), &committee, at(41)) && recovery.is_silent());
        assert_eq!(recovery.advance(&committee, at(80)), None);
    }
}
