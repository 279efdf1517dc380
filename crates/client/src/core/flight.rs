//! A bundle that was sent and has no believed answer yet.
//!
//! **When it is certain that it was never executed.** A replica that says "no session" has no session to execute it in from
//! then on, but may have executed it before, when there was one. It then has sent the result to every connection that it
//! sends this client's replies to, before it said "no session": a connection keeps order. So its word is certain where its
//! connection stood and it was answering on it when the bundle left for the first time, where it has answered on it ever since
//! (a connection that breaks, or that replies no longer go to, ends that), and where it has given no other answer. Of f + 1
//! such replicas one is honest, and what one honest replica has never executed, none has.

use bytes::Bytes;
use quorate_types::codec::Wire as _;
use quorate_types::wire::Refusal;
use quorate_types::{BundleDigest, Outcome, ReplicaId, ReplicaSet, ReplyBundle, Time};
use std::sync::Arc;

/// Different answers to one bundle that one replica may give: an honest one says in turn that the bundle is
/// out of its window, what it resulted in, that this is forgotten, and that the session is gone.
const ANSWERS_PER_REPLICA_MAX: usize = 4;

/// One bundle on its way.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) ticket: u64,
    pub(crate) requests: u32,
    pub(crate) digest: BundleDigest,
    /// The encoded message, the same bytes each time it is sent.
    pub(crate) frame: Bytes,
    pub(crate) submitted: Time,
    pub(crate) sent: Time,
    /// How often it was sent again.
    pub(crate) repeats: u32,
    /// Replicas that were sent it.
    pub(crate) sent_to: ReplicaSet,
    /// Replicas that would have told this client if they had executed it.
    pub(crate) witnesses: ReplicaSet,
    /// Those of them that have certainly never executed it and never will.
    never: ReplicaSet,
    /// Sessions that were lost before it was executed.
    pub(crate) lost: u32,
    /// Whether it goes to all replicas by now, and not only to the one that may be the leader.
    pub(crate) everyone: bool,
    /// When it goes to all (again).
    pub(crate) retry_at: Time,
    /// Pause before the retry after that one.
    pub(crate) pause: u64,
    /// When it goes once more to whom it was addressed, or to the leader alone, because it could not be taken.
    pub(crate) again_at: Option<Time>,
    /// Whether more replicas than may lie have too much to do for it.
    pub(crate) is_unwelcome: bool,
    /// How often it was put off like this.
    pub(crate) put_off: u32,
    answers: Vec<Answer>,
    refusals: Vec<(ReplicaId, Refusal)>,
}

/// One result, and who reports it.
#[derive(Debug)]
struct Answer {
    result: quorate_types::Digest,
    outcome: Arc<[u8]>,
    by: ReplicaSet,
}

/// What a reply changed.
#[derive(Debug, PartialEq)]
pub(crate) enum Vote {
    /// Not enough equal ones yet.
    Counted,
    /// The same replica said the same before, or too many different things.
    Ignored,
    /// The reply contradicts itself: its outcome does not have the digest that it names.
    Lie,
    /// Enough distinct replicas report this outcome.
    Believed(Arc<[u8]>),
}

impl Flight {
    pub(crate) fn new(
        ticket: u64,
        requests: u32,
        digest: BundleDigest,
        frame: Bytes,
        submitted: Time,
    ) -> Self {
        Self {
            ticket,
            requests,
            digest,
            frame,
            submitted,
            sent: submitted,
            repeats: 0,
            sent_to: ReplicaSet::EMPTY,
            witnesses: ReplicaSet::EMPTY,
            never: ReplicaSet::EMPTY,
            lost: 0,
            everyone: false,
            retry_at: Time::MAX,
            pause: 0,
            again_at: None,
            is_unwelcome: false,
            put_off: 0,
            answers: Vec::new(),
            refusals: Vec::new(),
        }
    }

    /// Counts a reply to this bundle; `needed` distinct replicas with the same result are believed.
    ///
    /// An outcome is hashed when its digest is named for the first time: once for each bundle, as long as
    /// nobody lies. What is held has the digest that it is held under.
    pub(crate) fn vote(&mut self, from: ReplicaId, reply: &ReplyBundle, needed: usize) -> Vote {
        let known = self.answers.iter_mut().position(|answer| answer.result == reply.result);
        let given = self.answers.iter().filter(|answer| answer.by.contains(from)).count();
        let answer = match known.and_then(|index| self.answers.get_mut(index)) {
            Some(answer) if answer.by.contains(from) => return Vote::Ignored,
            _ if given >= ANSWERS_PER_REPLICA_MAX => return Vote::Ignored,
            Some(answer) => answer,
            None if ReplyBundle::result_digest(&reply.outcome) != reply.result => return Vote::Lie,
            None => {
                let by = ReplicaSet::EMPTY;
                let (result, outcome) = (reply.result, reply.outcome.clone());
                self.answers.push_mut(Answer { result, outcome, by })
            }
        };
        answer.by.insert(from);
        if answer.by.len() >= needed { Vote::Believed(answer.outcome.clone()) } else { Vote::Counted }
    }

    /// Notes a refusal and says how many distinct replicas refuse for this reason since the bundle was last
    /// sent to all.
    pub(crate) fn refuse(&mut self, from: ReplicaId, why: Refusal) -> usize {
        self.refusals.retain(|(by, _)| *by != from);
        self.refusals.push((from, why));
        self.refusals.iter().filter(|(_, reason)| *reason == why).count()
    }

    /// Whether any replica was sent it.
    pub(crate) fn is_out(&self) -> bool {
        !self.sent_to.is_empty()
    }

    /// A replica says that there is no such session.
    pub(crate) fn no_session(&mut self, from: ReplicaId) {
        let has_answered =
            self.answers.iter().any(|answer| answer.by.contains(from) && !is_no_session(&answer.outcome));
        if self.witnesses.contains(from) && !has_answered {
            self.never.insert(from);
        }
    }

    /// Whether `needed` replicas have certainly never executed it.
    pub(crate) fn is_never(&self, needed: usize) -> bool {
        self.never.len() >= needed
    }

    /// Whether it may turn out that `needed` replicas have certainly never executed it, when those have spoken that have not.
    pub(crate) fn is_open_question(&self, needed: usize) -> bool {
        let mut silent = self.witnesses;
        for by in self.answered().iter().chain(self.never.iter()) {
            silent.remove(by);
        }
        !self.is_never(needed) && self.never.len().saturating_add(silent.len()) >= needed
    }

    /// For each result that replicas report, its digest and how many report it.
    pub(crate) fn answers(&self) -> impl Iterator<Item = (quorate_types::Digest, usize)> {
        self.answers.iter().map(|answer| (answer.result, answer.by.len()))
    }

    /// Replicas that have answered.
    pub(crate) fn answered(&self) -> ReplicaSet {
        let mut all = ReplicaSet::EMPTY;
        for by in self.answers.iter().flat_map(|answer| answer.by.iter()) {
            all.insert(by);
        }
        all
    }

    /// The latest refusal of each replica since the bundle was last sent to all.
    pub(crate) fn refusals(&self) -> &[(ReplicaId, Refusal)] {
        &self.refusals
    }

    /// From now on it goes to all; what they refused before does not count any more.
    pub(crate) fn widen(&mut self) {
        self.everyone = true;
        self.is_unwelcome = false;
        self.put_off = 0;
        self.refusals.clear();
    }

    /// Nothing is to be done for it before then.
    pub(crate) fn put_off_until(&mut self, time: Time) {
        self.again_at = Some(time);
        self.retry_at = self.retry_at.max(time);
    }

    /// When something has to be done for it.
    pub(crate) fn due(&self) -> Time {
        self.again_at.map_or(self.retry_at, |again| again.min(self.retry_at))
    }
}

/// Whether an encoded outcome is [`Outcome::NoSession`].
pub(crate) fn is_no_session(outcome: &[u8]) -> bool {
    outcome.len() == 1 && Outcome::from_bytes(outcome) == Ok(Outcome::NoSession)
}
