//! Flaws of Apollo (its notes, §23) for the museum. Two of them are flaws of Artemis as well.

use crate::apollo_run::Message;
use crate::sync_exact_world::DELTA_NS;
use crate::sync_flaws::Moved;
use quorate_consensus::flawed::Flaw;
use quorate_consensus::{Effect, Hold, Past, Protocol as _, Seal, Timers, To};
use quorate_protocols::unique_chain::{
    Apollo, Entry as _, Form, Framed, RoundProof, Timer, UniqueChain, UniqueMessage, UniqueRecord,
};
use quorate_types::{ReplicaId, Time, View};

type MessageOf<F> = UniqueMessage<<F as Form>::Entry, <F as Form>::Message>;

/// no-relay: no leader receives a relay.
#[derive(Default)]
pub(crate) struct NoRelay;

impl<F: Form> Flaw<UniqueChain<F>> for NoRelay {
    fn says(&mut self, _: &UniqueChain<F>, to: &mut To, message: &mut MessageOf<F>) -> bool {
        !matches!((to, message), (To::One(_), UniqueMessage::Proof(_)))
    }
}

/// short-timer: 3 Δ + τ instead of 4 Δ + τ.
#[derive(Default)]
pub(crate) struct ShortRound(Moved);

impl Flaw<UniqueChain<Apollo>> for ShortRound {
    fn clock(&mut self, _: &UniqueChain<Apollo>, timer: Timer, now: Time) -> Time {
        self.0.clock(timer == Timer::Round, now)
    }

    fn sets_timers(&mut self, _: &UniqueChain<Apollo>, _: Time, timers: &mut Timers<Timer>) {
        self.0.follow(timers, Timer::Round, |at| at.minus(DELTA_NS));
    }
}

/// The end of a round's wait, as the flaw has it.
#[derive(Default)]
struct Pinned {
    round: View,
    /// The end, once it is known, and the time that the protocol has set.
    end: Option<Time>,
    set: Option<Time>,
}

impl Pinned {
    /// Returns the time that the protocol reads. Its next wait is a new one.
    fn clock(&mut self, is_round: bool, now: Time) -> Time {
        if !is_round {
            return now;
        }
        self.end = None;
        self.set.take().map_or(now, |set| now.max(set))
    }

    /// Keeps the first end of each round.
    fn follow(&mut self, round: View, timers: &mut Timers<Timer>) {
        if round != self.round {
            *self = Self { round, ..Self::default() };
        }
        match (timers.get(Timer::Round), self.end) {
            (Some(at), None) => (self.end, self.set) = (Some(at), Some(at)),
            (Some(at), Some(end)) if at > end => {
                self.set = Some(at);
                timers.set(Timer::Round, end);
            }
            (Some(_), Some(_)) => {}
            (None, _) => (self.end, self.set) = (None, None),
        }
    }
}

/// no-grace: the leader's own copy prolongs no wait.
#[derive(Default)]
pub(crate) struct NoGrace(Pinned);

impl Flaw<UniqueChain<Apollo>> for NoGrace {
    fn clock(&mut self, _: &UniqueChain<Apollo>, timer: Timer, now: Time) -> Time {
        self.0.clock(timer == Timer::Round, now)
    }

    fn sets_timers(&mut self, protocol: &UniqueChain<Apollo>, _: Time, timers: &mut Timers<Timer>) {
        self.0.follow(protocol.status().view, timers);
    }
}

/// foreign-grace: the first header of the round's leader that arrives prolongs the wait, whoever hands it on, and no later one
/// does.
#[derive(Default)]
pub(crate) struct ForeignGrace {
    pinned: Pinned,
    /// The round in which another replica has handed on the header.
    shown: Option<View>,
}

impl Flaw<UniqueChain<Apollo>> for ForeignGrace {
    fn hears(&mut self, protocol: &UniqueChain<Apollo>, message: Message, _: &Seal) -> Vec<Message> {
        let round = protocol.status().view;
        if let UniqueMessage::Proof(proof) = &message
            && proof.tip.as_ref().is_some_and(|tip| tip.entry.round() == round)
        {
            self.shown = Some(round);
        }
        vec![message]
    }

    fn clock(&mut self, _: &UniqueChain<Apollo>, timer: Timer, now: Time) -> Time {
        self.pinned.clock(timer == Timer::Round, now)
    }

    fn sets_timers(&mut self, protocol: &UniqueChain<Apollo>, now: Time, timers: &mut Timers<Timer>) {
        let round = protocol.status().view;
        let is_first = self.pinned.round != round || self.shown != Some(round);
        if is_first {
            // The wait of the protocol holds until a header is handed on.
            self.pinned = Pinned { round, ..Pinned::default() };
        }
        match (self.shown == Some(round), self.pinned.end, timers.get(Timer::Round)) {
            (true, None, Some(at)) => {
                let end = at.max(now.plus(2 * DELTA_NS + DELTA_NS / 4));
                (self.pinned.end, self.pinned.set) = (Some(end), Some(end));
                timers.set(Timer::Round, end);
            }
            (true, Some(end), Some(at)) if at != end => {
                self.pinned.set = Some(at.max(end));
                timers.set(Timer::Round, end);
            }
            _ => {}
        }
    }
}

/// restart-blames: a restarted replica takes nothing from answers and questions, and its wait has begun when it was opened.
pub(crate) struct RestartBlames<F: Form, const WAIT_NS: u64> {
    /// Its highest accepted entry on disk.
    tip: Option<Framed<F::Entry>>,
    opened: Option<Time>,
}

impl<F: Form, const WAIT_NS: u64> Default for RestartBlames<F, WAIT_NS> {
    fn default() -> Self {
        Self { tip: None, opened: None }
    }
}

impl<F: Form, const WAIT_NS: u64> Flaw<UniqueChain<F>> for RestartBlames<F, WAIT_NS> {
    fn opens(&mut self, _: ReplicaId, past: &mut Past<UniqueRecord<F::Entry, F::Fact>>) {
        let accepted = past.records.iter().filter_map(|record| match record {
            UniqueRecord::Accepted { frame, .. } => Some(frame.clone()),
            _ => None,
        });
        self.tip = accepted.max_by_key(|frame| frame.entry.round());
    }

    fn hears(&mut self, _: &UniqueChain<F>, message: MessageOf<F>, _: &Seal) -> Vec<MessageOf<F>> {
        if self.tip.is_none() {
            return vec![message];
        }
        let nothing = || RoundProof { round: View(1), tip: None, skips: Vec::new(), resync: false };
        vec![match message {
            UniqueMessage::Answer(mut answer) => {
                (answer.proof, answer.last) = (nothing(), None);
                UniqueMessage::Answer(answer)
            }
            UniqueMessage::Ask { incarnation, .. } => {
                UniqueMessage::Ask { incarnation, proof: Box::new(nothing()) }
            }
            other => other,
        }]
    }

    fn acts(&mut self, _: &UniqueChain<F>, now: Time, effects: &mut Vec<Effect>) {
        let opened = *self.opened.get_or_insert(now);
        let is_over = now >= opened.plus(WAIT_NS);
        let Some(tip) = self.tip.take_if(|_| is_over) else { return };
        let round = tip.entry.round().next();
        let proof = RoundProof { round, tip: Some(tip), skips: Vec::new(), resync: true };
        let message: Box<MessageOf<F>> = Box::new(UniqueMessage::Blame(Box::new(proof)));
        effects.push(Effect::Send { to: To::All, hold: Hold::No, message });
    }
}
