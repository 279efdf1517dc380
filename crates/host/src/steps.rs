//! Steps of a replica, by kind, for measurements.
//!
//! A step is one call of the replica: an input, the timers that are due, or the news that the pool has changed. Its time
//! begins before the call and ends after it. Checks of signatures, own signatures, log writes, syncs, execution and sends
//! are no part of a step. A turn has all of them.

use crate::outgoing::Outgoing;
use crate::turn::Host;
use quorate_consensus::MessageRole;
use quorate_replica::{Input, Output};
use quorate_types::Time;

/// The kind of a step. A step that sends a message with a role has the kind of that role, and otherwise that of its input.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum StepKind {
    /// The replica proposes a block.
    Propose,
    /// The replica votes for a block.
    Vote,
    /// The replica leaves a view whose leader has failed, or begins the next one.
    ViewChange,
    /// A bundle or payload of a peer arrives.
    Body,
    /// A bundle of a client arrives.
    Request,
    /// Another message of a peer arrives.
    Message,
    /// Any other step: an own copy, a durable mark, an executed block, an event of a link, due timers.
    Other,
    /// A whole turn of the host, from the checks to the last flush, with the sync of the log.
    Turn,
}

impl StepKind {
    /// All kinds, in the order of reports.
    pub const ALL: [Self; 8] = [
        Self::Propose,
        Self::Vote,
        Self::ViewChange,
        Self::Body,
        Self::Request,
        Self::Message,
        Self::Other,
        Self::Turn,
    ];

    /// Returns the name, for status and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Propose => "propose",
            Self::Vote => "vote",
            Self::ViewChange => "view_change",
            Self::Body => "body",
            Self::Request => "request",
            Self::Message => "message",
            Self::Other => "other",
            Self::Turn => "turn",
        }
    }

    /// Returns the kind of an input's step that sends no message with a role.
    fn of(input: &Input) -> Self {
        match input {
            Input::Client(..) => Self::Request,
            Input::Bundle { .. } | Input::Payload(..) => Self::Body,
            Input::Peer(_) => Self::Message,
            _ => Self::Other,
        }
    }

    /// Returns the kind of a step that has sent messages of this role.
    const fn sending(self, role: Option<MessageRole>) -> Self {
        match role {
            Some(MessageRole::Proposal) => Self::Propose,
            Some(MessageRole::Vote) => Self::Vote,
            Some(MessageRole::ViewChange) => Self::ViewChange,
            None => self,
        }
    }
}

impl Host {
    /// Hands the waiting inputs to the replica. The end of a step is the beginning of the next one, so each costs one reading
    /// of the stopwatch.
    pub(crate) fn handle(&mut self, now: Time, out: &mut dyn Outgoing) {
        if self.inputs.is_empty() {
            return;
        }
        let mut inputs = std::mem::take(&mut self.inputs);
        let mut began = out.stopwatch_ns();
        for input in inputs.drain(..) {
            let kind = StepKind::of(&input);
            self.replica.handle(now, input);
            began = self.note_step(kind, began, out);
        }
        self.inputs = inputs;
    }

    /// Hands one input to the replica.
    pub(crate) fn handle_one(&mut self, now: Time, input: Input, out: &mut dyn Outgoing) {
        let (kind, began) = (StepKind::of(&input), out.stopwatch_ns());
        self.replica.handle(now, input);
        self.note_step(kind, began, out);
    }

    /// Fires due timers.
    pub(crate) fn tick(&mut self, due: Time, out: &mut dyn Outgoing) {
        let is_due = self.replica.deadline().is_some_and(|at| at <= due);
        if !is_due {
            return self.replica.tick(due);
        }
        let began = out.stopwatch_ns();
        self.replica.tick(due);
        self.note_step(StepKind::Other, began, out);
    }

    /// Returns the next output of the replica.
    pub(crate) fn poll(&mut self, out: &mut dyn Outgoing) -> Option<Output> {
        if !self.replica.is_poll_a_step() {
            return self.replica.poll();
        }
        let began = out.stopwatch_ns();
        let output = self.replica.poll();
        self.note_step(StepKind::Other, began, out);
        output
    }

    /// Notes the step that began at `began`. Returns its end.
    fn note_step(&self, kind: StepKind, began: u64, out: &mut dyn Outgoing) -> u64 {
        let ended = out.stopwatch_ns();
        out.step(kind.sending(self.replica.sent_role()), ended.saturating_sub(began));
        ended
    }
}
