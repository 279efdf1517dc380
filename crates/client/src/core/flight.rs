//! A bundle that was sent and has no accepted answer yet.
//!
//! **Certainty that a bundle was never executed.** A replica that replies "no session" cannot execute the bundle
//! from then on. It may have executed the bundle before, while the session existed. In that case it had sent the result to every connection
//! that receives this client's replies, before "no session": a connection keeps order.
//!
//! The reply is therefore certain under three conditions. The replica was reporting on its connection when the
//! bundle left for the first time. It has reported on it ever since: a connection that breaks, or that no longer receives the
//! replies, ends this. And the replica has given no other answer. Of f + 1 such replicas one is honest, and a bundle that one
//! honest replica has never executed, no honest replica has.

use super::ordering::OrderWait;
use bytes::Bytes;
use quorate_types::codec::Wire as _;
use quorate_types::wire::Refusal;
use quorate_types::{BundleDigest, Outcome, ReplicaId, ReplicaSet, ReplyBundle, Time};
use std::sync::Arc;

/// Different answers that one replica may give to one bundle. An honest replica reports in turn that the bundle is
/// out of its window, the result, that the result is forgotten, and that the session is gone.
const ANSWERS_PER_REPLICA_MAX: usize = 4;

/// One bundle in flight.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    pub(crate) ticket: u64,
    pub(crate) requests: u32,
    pub(crate) digest: BundleDigest,
    /// The encoded message, the same bytes each time it is sent.
    pub(crate) frame: Bytes,
    pub(crate) submitted: Time,
    pub(crate) sent: Time,
    /// The number of times that it was sent again.
    pub(crate) repeats: u32,
    /// Replicas that the bundle was sent to.
    pub(crate) sent_to: ReplicaSet,
    /// Replicas that would have reported an execution to this client.
    pub(crate) witnesses: ReplicaSet,
    /// Witnesses that have certainly never executed the bundle and never will.
    never_executed: ReplicaSet,
    /// Sessions that were lost before its execution.
    pub(crate) lost: u32,
    /// Whether it goes to all replicas by now, and not only to the probable leader.
    pub(crate) to_all: bool,
    /// The time at which it goes to all (again).
    pub(crate) retry_at: Time,
    /// Pause before the retry after that one.
    pub(crate) pause: u64,
    /// The time at which a refused bundle is sent again to the same replicas, or to the leader alone.
    pub(crate) postponed_to: Option<Time>,
    /// Whether more than f replicas are busy.
    pub(crate) is_busy_at_many: bool,
    /// The number of postponements.
    pub(crate) postponements: u32,
    /// The wait for a proof of its order, if the call asks for it.
    pub(super) order: Option<Box<OrderWait>>,
    answers: Vec<ReportedAnswer>,
    refusals: Vec<(ReplicaId, Refusal)>,
}

/// One result, and the replicas that report it.
#[derive(Debug)]
struct ReportedAnswer {
    result: quorate_types::Digest,
    outcome: Arc<[u8]>,
    by: ReplicaSet,
}

/// The effect of a reply.
#[derive(Debug, PartialEq)]
pub(crate) enum ReplyEffect {
    /// The reply counts, and there are not enough equal ones yet.
    Counted,
    /// The replica has sent the same reply before, or too many different ones.
    Ignored,
    /// The reply contradicts itself: its outcome does not have the named digest.
    Lie,
    /// Enough distinct replicas report this outcome.
    Accepted(Arc<[u8]>),
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
            retry_at: Time::MAX,
            ..Self::default()
        }
    }

    /// Counts a reply to this bundle; a result of `needed` distinct replicas is accepted.
    ///
    /// An outcome is hashed when its digest is named for the first time: once for each bundle, as long as
    /// no replica lies. Each stored outcome has the digest under which it is stored.
    pub(crate) fn count_reply(&mut self, from: ReplicaId, reply: &ReplyBundle, needed: usize) -> ReplyEffect {
        let known = self.answers.iter_mut().position(|answer| answer.result == reply.result);
        let given = self.answers.iter().filter(|answer| answer.by.contains(from)).count();
        let answer = match known.and_then(|index| self.answers.get_mut(index)) {
            Some(answer) if answer.by.contains(from) => return ReplyEffect::Ignored,
            _ if given >= ANSWERS_PER_REPLICA_MAX => return ReplyEffect::Ignored,
            Some(answer) => answer,
            None if ReplyBundle::result_digest(&reply.outcome) != reply.result => return ReplyEffect::Lie,
            None => {
                let by = ReplicaSet::EMPTY;
                let (result, outcome) = (reply.result, reply.outcome.clone());
                self.answers.push_mut(ReportedAnswer { result, outcome, by })
            }
        };
        answer.by.insert(from);
        if answer.by.len() >= needed {
            ReplyEffect::Accepted(answer.outcome.clone())
        } else {
            ReplyEffect::Counted
        }
    }

    /// Notes a refusal. Returns the number of distinct replicas that refused for this reason since the bundle was last
    /// sent to all.
    pub(crate) fn refuse(&mut self, from: ReplicaId, why: Refusal) -> usize {
        self.refusals.retain(|(by, _)| *by != from);
        self.refusals.push((from, why));
        self.refusals.iter().filter(|(_, reason)| *reason == why).count()
    }

    /// Whether it was sent to any replica.
    pub(crate) fn is_out(&self) -> bool {
        !self.sent_to.is_empty()
    }

    /// Notes that a replica has no such session.
    pub(crate) fn no_session(&mut self, from: ReplicaId) {
        let has_answered =
            self.answers.iter().any(|answer| answer.by.contains(from) && !is_no_session(&answer.outcome));
        if self.witnesses.contains(from) && !has_answered {
            self.never_executed.insert(from);
        }
    }

    /// Whether `needed` replicas have certainly never executed it.
    pub(crate) fn is_never_executed(&self, needed: usize) -> bool {
        self.never_executed.len() >= needed
    }

    /// Whether the missing answers may still show that `needed` replicas have certainly never executed it.
    pub(crate) fn is_open_question(&self, needed: usize) -> bool {
        let mut silent = self.witnesses;
        for by in self.answered().iter().chain(self.never_executed.iter()) {
            silent.remove(by);
        }
        !self.is_never_executed(needed) && self.never_executed.len().saturating_add(silent.len()) >= needed
    }

    /// Returns each reported result: its digest, and the number of replicas that report it.
    pub(crate) fn answers(&self) -> impl Iterator<Item = (quorate_types::Digest, usize)> {
        self.answers.iter().map(|answer| (answer.result, answer.by.len()))
    }

    /// Returns the replicas that have answered.
    pub(crate) fn answered(&self) -> ReplicaSet {
        let mut all = ReplicaSet::EMPTY;
        for by in self.answers.iter().flat_map(|answer| answer.by.iter()) {
            all.insert(by);
        }
        all
    }

    /// Returns the latest refusal of each replica since the bundle was last sent to all.
    pub(crate) fn refusals(&self) -> &[(ReplicaId, Refusal)] {
        &self.refusals
    }

    /// Addresses the bundle to all replicas from now on. Earlier refusals no longer count.
    pub(crate) fn widen(&mut self) {
        self.to_all = true;
        self.is_busy_at_many = false;
        self.postponements = 0;
        self.refusals.clear();
    }

    /// Postpones all work for the bundle until `time`.
    pub(crate) fn postpone_until(&mut self, time: Time) {
        self.postponed_to = Some(time);
        self.retry_at = self.retry_at.max(time);
    }

    /// Whether the bundle is executed, and its call waits for the proof of its order alone.
    pub(crate) fn is_executed(&self) -> bool {
        self.order.as_ref().is_some_and(|wait| wait.is_executed)
    }

    /// Returns the time at which the bundle is sent again, or its order is asked for.
    pub(crate) fn next_work(&self) -> Time {
        self.order.as_ref().map_or(self.due(), |wait| self.due().min(wait.ask_at))
    }

    /// Returns the time at which the bundle is sent again.
    pub(crate) fn due(&self) -> Time {
        self.postponed_to.map_or(self.retry_at, |again| again.min(self.retry_at))
    }
}

/// Whether an encoded outcome is [`Outcome::NoSession`].
pub(crate) fn is_no_session(outcome: &[u8]) -> bool {
    outcome.len() == 1 && Outcome::from_bytes(outcome) == Ok(Outcome::NoSession)
}
