//! How a replica of a synchronous protocol comes back (`sync-hotstuff` §18): at its first start, after a restart, after
//! a cold start of all, and when links have lost something for good.
//!
//! What it knew may have gone with the power, and so may what peers sent meanwhile. It asks them, says nothing until
//! enough have answered, and commits by no timer until the others are back as well.

use super::synchrony::{Delta, SynchronyParams};
use quorate_types::codec::{DecodeError, Reader, Wire};
use quorate_types::{Committee, ReplicaId, ReplicaSet, Time};
use std::collections::BTreeMap;

/// What a replica may do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Standing {
    /// Handle, answer, fetch, relay. It signs nothing and sets no timer of the protocol.
    Silent,
    /// Everything but commit by a timer.
    Voting,
    /// Everything.
    Running,
}

impl Wire for Standing {
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
            _ => Err(DecodeError::Tag("standing")),
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Returning {
    delta: Delta,
    boot_wait_ns: u64,
    standing: Standing,
    /// When it became silent.
    opened: Time,
    /// Since when all peers that can be reached are being asked.
    asked: Time,
    /// When those that have not answered are asked next.
    ask_at: Time,
    /// What peers have said of themselves since this replica became silent.
    said: BTreeMap<ReplicaId, Standing>,
    /// Peers that have been connected since then.
    met: ReplicaSet,
    /// Peers of whose messages something was lost for good, and that have not answered since.
    gaps: ReplicaSet,
}

impl Returning {
    /// A replica has just been opened: it is silent, and everybody is to be asked.
    #[must_use]
    pub fn open(params: &SynchronyParams, now: Time) -> Self {
        Self {
            delta: params.delta(),
            boot_wait_ns: params.boot_wait_ns(),
            standing: Standing::Silent,
            opened: now,
            asked: now,
            ask_at: now,
            said: BTreeMap::new(),
            met: ReplicaSet::EMPTY,
            gaps: ReplicaSet::EMPTY,
        }
    }

    /// What this replica may do.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Whether it may say nothing.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.standing == Standing::Silent
    }

    /// A peer has answered, or said that its standing has changed.
    pub fn note(&mut self, peer: ReplicaId, standing: Standing) {
        self.gaps.remove(peer);
        self.said.insert(peer, standing);
    }

    /// A peer has answered, and what it had said before is not all here: its gap stays.
    pub fn note_partly(&mut self, peer: ReplicaId, standing: Standing) {
        self.said.insert(peer, standing);
    }

    /// A peer is connected. True when it is to be asked now: what was said to it before may be on its way still.
    pub fn note_link(&mut self, peer: ReplicaId, now: Time) -> bool {
        let is_first = self.is_silent() && self.met.insert(peer);
        if is_first {
            self.asked = now;
        }
        is_first
    }

    /// Something that a peer has sent is lost for good. True when this replica becomes silent for it: more than f such
    /// peers may have said what it must know; one liar must not silence it.
    pub fn note_gap(&mut self, peer: ReplicaId, committee: &Committee, now: Time) -> bool {
        self.gaps.insert(peer);
        // What it has said before may be older than what was lost.
        self.ask_at = now;
        if self.is_silent() {
            self.said.remove(&peer);
        }
        let silences = !self.is_silent() && self.gaps.len() > committee.f;
        if silences {
            self.standing = Standing::Silent;
            (self.opened, self.asked, self.ask_at) = (now, now, now);
            self.said.clear();
        }
        silences
    }

    /// Who is to be asked now, if anybody: everybody who has not answered or is silent, every Δ; who has left a gap.
    pub fn to_ask(&mut self, committee: &Committee, me: ReplicaId, now: Time) -> ReplicaSet {
        if now < self.ask_at {
            return ReplicaSet::EMPTY;
        }
        self.ask_at = now.plus(self.delta.times(1));
        let is_open = |peer: &ReplicaId| {
            let is_back = self.said.get(peer).is_some_and(|said| *said > Standing::Silent);
            self.gaps.contains(*peer) || (self.standing < Standing::Running && !is_back)
        };
        committee.others(me).filter(is_open).collect()
    }

    /// The next standing, if its time has come.
    #[must_use]
    pub fn next(&self, committee: &Committee, now: Time) -> Option<Standing> {
        match self.standing {
            Standing::Silent if self.follows(committee, now) => Some(Standing::Running),
            Standing::Silent if self.may_vote(committee, now) => Some(Standing::Voting),
            Standing::Voting if self.follows(committee, now) || self.may_run(committee, now) => {
                Some(Standing::Running)
            }
            _ => None,
        }
    }

    /// The same, and it is entered.
    pub fn advance(&mut self, committee: &Committee, now: Time) -> Option<Standing> {
        let next = self.next(committee, now)?;
        self.standing = next;
        Some(next)
    }

    /// (a): f + 1 peers run, so an honest one does, and whatever honest replicas had sent when they were asked is here.
    fn follows(&self, committee: &Committee, now: Time) -> bool {
        let running = self.said.values().filter(|said| **said == Standing::Running).count();
        running >= committee.weak() && now >= self.asked.plus(self.delta.times(2))
    }

    fn may_vote(&self, committee: &Committee, now: Time) -> bool {
        let (others, answers) = (committee.n().saturating_sub(1), self.said.len());
        // Whoever was reached just now has its time to answer; and what others say of what it has said, before it fails, comes.
        let is_heard = now >= self.asked.plus(self.delta.times(2));
        // (b): nobody is missing. (c): who is missing now does not come back with its disk.
        let is_back = answers >= others.saturating_sub(committee.f) && now >= self.patience(1);
        is_heard && (answers >= others || is_back)
    }

    fn may_run(&self, committee: &Committee, now: Time) -> bool {
        let others = committee.n().saturating_sub(1);
        let back = self.said.values().filter(|said| **said >= Standing::Voting).count();
        back >= others || now >= self.patience(2)
    }

    /// So many times the wait for others, and 2 Δ for their answers.
    fn patience(&self, waits: u64) -> Time {
        self.opened.plus(self.boot_wait_ns.saturating_mul(waits)).plus(self.delta.times(2))
    }

    /// When time alone may change something; not after `now` where somebody is to be asked.
    #[must_use]
    pub fn deadline(&self, now: Time) -> Option<Time> {
        let waits = match self.standing {
            Standing::Silent => [self.asked.plus(self.delta.times(2)), self.patience(1)],
            Standing::Voting => [self.asked.plus(self.delta.times(2)), self.patience(2)],
            Standing::Running if self.gaps.is_empty() => return None,
            Standing::Running => [self.ask_at; 2],
        };
        // What a wait that is over allows was taken up. A question that is due was not asked yet, and an answer that comes
        // just then must not put it off for ever.
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

    /// Δ is 10 ms, the wait for others 1 s.
    fn params() -> SynchronyParams {
        SynchronyParams { delta_ms: 10, boot_wait_ms: 1_000, drift_ppm: 0, ..SynchronyParams::default() }
    }

    fn opened() -> Returning {
        Returning::open(&params(), Time::ZERO)
    }

    fn at(ms: u64) -> Time {
        Time(ms * MS)
    }

    fn peer(id: u16) -> ReplicaId {
        ReplicaId(id)
    }

    #[test]
    fn all_begin_when_all_have_answered() {
        let (committee, mut returning) = (committee(3, 1), opened());
        returning.note(peer(1), Standing::Silent);
        assert_eq!(returning.advance(&committee, at(900)), None);
        returning.note(peer(2), Standing::Silent);
        assert_eq!(returning.advance(&committee, at(901)), Some(Standing::Voting));
        assert_eq!(returning.advance(&committee, at(902)), None);
        returning.note(peer(1), Standing::Voting);
        returning.note(peer(2), Standing::Voting);
        assert_eq!(returning.advance(&committee, at(903)), Some(Standing::Running));
    }

    /// One of them may have been reached just now: what it had voted for another one may have missed, who fails next.
    #[test]
    fn who_was_reached_just_now_is_heard_although_all_have_answered() {
        let (committee, mut returning) = (committee(3, 1), opened());
        returning.note(peer(1), Standing::Silent);
        assert!(returning.note_link(peer(2), at(500)));
        returning.note(peer(2), Standing::Silent);
        assert_eq!(returning.advance(&committee, at(519)), None);
        assert!(returning.deadline(at(519)).is_some_and(|next| next <= at(520)));
        assert_eq!(returning.advance(&committee, at(520)), Some(Standing::Voting));
    }

    #[test]
    fn who_comes_back_to_a_running_cluster_follows_it() {
        let (committee, mut returning) = (committee(3, 1), opened());
        returning.note(peer(1), Standing::Running);
        assert_eq!(returning.advance(&committee, at(500)), None, "it may lie");
        let (committee, mut returning) = (self::committee(5, 2), opened());
        (1..=3).for_each(|id| returning.note(peer(id), Standing::Running));
        assert_eq!(returning.to_ask(&committee, peer(0), at(19)).len(), 1, "who has not answered");
        assert_eq!(returning.advance(&committee, at(19)), None);
        assert_eq!(returning.deadline(at(19)), Some(at(20)));
        assert_eq!(returning.advance(&committee, at(20)), Some(Standing::Running));
    }

    #[test]
    fn who_is_connected_late_is_waited_for() {
        let (committee, mut returning) = (committee(5, 2), opened());
        assert!(returning.note_link(peer(1), at(15)) && !returning.note_link(peer(1), at(17)));
        (1..=3).for_each(|id| returning.note(peer(id), Standing::Running));
        assert_eq!(returning.advance(&committee, at(34)), None);
        assert_eq!(returning.advance(&committee, at(35)), Some(Standing::Running));
    }

    #[test]
    fn who_is_missing_is_waited_for_and_not_for_ever() {
        let (committee, mut returning) = (committee(3, 1), opened());
        returning.note(peer(1), Standing::Silent);
        assert_eq!(returning.advance(&committee, at(1_019)), None);
        assert_eq!(returning.advance(&committee, at(1_020)), Some(Standing::Voting));
        returning.note(peer(1), Standing::Voting);
        assert_eq!(returning.advance(&committee, at(2_019)), None);
        assert_eq!(returning.advance(&committee, at(2_020)), Some(Standing::Running));
        let mut alone = opened();
        assert_eq!(alone.advance(&committee, at(60_000)), None, "nobody has answered");
    }

    /// It was opened in time, and had to be dialled.
    #[test]
    fn who_is_reached_at_the_last_moment_is_heard() {
        let (committee, mut returning) = (committee(3, 1), opened());
        returning.note(peer(1), Standing::Silent);
        assert!(returning.note_link(peer(2), at(1_019)));
        assert_eq!(returning.to_ask(&committee, peer(0), at(1_030)).len(), 2);
        assert_eq!(returning.advance(&committee, at(1_038)), None);
        assert_eq!(returning.deadline(at(1_038)), Some(at(1_039)));
        assert_eq!(returning.advance(&committee, at(1_039)), Some(Standing::Voting));
    }

    #[test]
    fn those_who_have_not_answered_are_asked_again() {
        let (committee, mut returning) = (committee(3, 1), opened());
        let ask = |returning: &mut Returning, ms| returning.to_ask(&committee, peer(0), at(ms)).len();
        assert_eq!((ask(&mut returning, 0), ask(&mut returning, 9)), (2, 0));
        returning.note(peer(1), Standing::Running);
        assert_eq!(ask(&mut returning, 10), 1);
    }

    /// Answers come when they like, those of a liar also unasked.
    #[test]
    fn an_answer_does_not_put_off_what_is_to_be_asked() {
        let (committee, mut returning) = (committee(3, 1), opened());
        assert_eq!(returning.to_ask(&committee, peer(0), at(0)).len(), 2);
        for ms in [10, 11, 20, 500] {
            returning.note(peer(1), Standing::Silent);
            assert_eq!(returning.advance(&committee, at(ms)), None);
            assert_eq!(returning.deadline(at(ms)), Some(at(10)), "it was due, and is not done");
        }
        assert_eq!(returning.to_ask(&committee, peer(0), at(501)).len(), 2);
        assert_eq!(returning.deadline(at(501)), Some(at(511)), "and now it is");
    }

    #[test]
    fn gaps_with_more_than_f_peers_silence() {
        let (committee, mut returning) = (committee(3, 1), opened());
        for id in [1, 2] {
            returning.note(peer(id), Standing::Running);
        }
        assert_eq!(returning.advance(&committee, at(20)), Some(Standing::Running));
        assert_eq!(returning.deadline(at(20)), None);
        assert!(!returning.note_gap(peer(1), &committee, at(30)));
        assert_eq!(returning.to_ask(&committee, peer(0), at(30)).len(), 1);
        returning.note(peer(1), Standing::Running);
        assert!(!returning.note_gap(peer(2), &committee, at(40)), "the first has answered since");
        assert!(returning.note_gap(peer(1), &committee, at(41)) && returning.is_silent());
        assert_eq!(returning.advance(&committee, at(80)), None);
    }
}
