//! Signature checks of the messages of peers.

use super::message_queues::{ArrivedMessage, MessageQueues, WaitingMessage};
use super::outcome::{CheckCosts, FrameSource, RefusedFrame};
use super::shares::{LastServed, RunLimits, RunShares, SUSPECT_CHECKS_MAX, SUSPECT_COST_MAX};
use crate::input::{Checked, CheckedMessage, Input};
use quorate_consensus::Seal;
use quorate_crypto::CommitteeKeys;
use quorate_types::limits::CERTIFICATES_REMEMBERED_MAX;
use quorate_types::{Digest, Kind, ReplicaId, ReplicaSet, Signature};
use std::collections::BTreeSet;
use std::sync::Arc;

/// See the module.
pub(super) struct MessageChecks {
    /// Keys of the committee; `None` where one of them is no key.
    keys: Option<Arc<CommitteeKeys>>,
    pub(super) queues: MessageQueues,
    /// The messages of this run; empty between runs, and reused.
    taken: Vec<ArrivedMessage>,
    limits: RunLimits,
    last_served: LastServed,
    /// Peers that have sent a signature that does not hold.
    suspected: ReplicaSet,
    /// Peers whose sockets are paused (back-pressure).
    pub(super) paused: ReplicaSet,
    /// The peer whose messages come first at present.
    pub(super) urgent: Option<ReplicaId>,
    /// Digests of certificates that hold.
    certificates: BTreeSet<Digest>,
}

impl MessageChecks {
    pub(super) fn new(keys: Option<Arc<CommitteeKeys>>, n: usize) -> Self {
        Self {
            keys,
            queues: MessageQueues::default(),
            taken: Vec::new(),
            limits: RunLimits::of(n),
            last_served: LastServed::default(),
            suspected: ReplicaSet::EMPTY,
            paused: ReplicaSet::EMPTY,
            urgent: None,
            certificates: BTreeSet::new(),
        }
    }

    /// Whether a certificate with this digest was checked before and holds.
    pub(super) fn is_checked(&self, certificate: &Digest) -> bool {
        self.certificates.contains(certificate)
    }

    /// Checks the messages of one run, and appends those that hold to `inputs`.
    pub(super) fn run(
        &mut self,
        costs: &mut CheckCosts<'_>,
        inputs: &mut Vec<Input>,
        refused: &mut Vec<RefusedFrame>,
    ) {
        self.paused = ReplicaSet::EMPTY;
        for waiting in self.queues.take_before_gaps() {
            refused.push(RefusedFrame::harmless(waiting.from, kind_of(&waiting.message), "before a gap"));
        }
        if self.queues.is_empty() {
            return;
        }
        let mut taken = self.take_messages(costs, refused);
        let checks = taken.iter().flat_map(|(_, waiting)| &waiting.checks);
        let mut verdicts = self.verdicts(checks, costs).into_iter();
        let mut passed = Vec::with_capacity(taken.len());
        for (_, waiting) in taken.drain(..) {
            let WaitingMessage { from, message, signature, checks, certificates, own, .. } = waiting;
            // Take every verdict of this message: otherwise the next message would be judged by the rest.
            let mut good = true;
            for holds in verdicts.by_ref().take(checks.len()) {
                good &= holds;
            }
            if good {
                self.remember(certificates);
                // A replica whose log lacks one of them stops before it handles the message.
                inputs.extend(own.into_iter().map(Input::OwnStatement));
                let seal = Seal { by: from, signature };
                passed.push(Input::Peer(Checked { link: from, seal, message }));
            } else {
                self.suspected.insert(from);
                refused.push(bad_signature(from, &message));
            }
        }
        if let Some(urgent) = self.urgent {
            // The sort is stable, so each link keeps its order.
            passed.sort_by_key(|input| !matches!(input, Input::Peer(checked) if checked.link == urgent));
        }
        inputs.append(&mut passed);
        self.taken = taken;
    }

    /// Returns for each signature whether it holds.
    fn verdicts<'c>(
        &self,
        checks: impl Iterator<Item = &'c (ReplicaId, [u8; 32], Signature)>,
        costs: &mut CheckCosts<'_>,
    ) -> Vec<bool> {
        let mut claims = checks.map(|(by, preimage, signature)| (*by, preimage, signature)).peekable();
        match &self.keys {
            // Votes that links authenticate need no signature, and no reading of the clock.
            _ if claims.peek().is_none() => Vec::new(),
            Some(keys) => {
                let began = (costs.cpu_ns)();
                let verdicts = keys.check(claims, costs.ledger);
                let ns = (costs.cpu_ns)().saturating_sub(began);
                costs.ledger.replica_check_ns = costs.ledger.replica_check_ns.wrapping_add(ns);
                verdicts
            }
            None => claims.map(|_| false).collect(),
        }
    }

    /// Takes the messages of this run: all, or as many of each peer as its share allows.
    fn take_messages(
        &mut self,
        costs: &mut CheckCosts<'_>,
        refused: &mut Vec<RefusedFrame>,
    ) -> Vec<ArrivedMessage> {
        let mut taken = std::mem::take(&mut self.taken);
        let shares = RunShares::of(self.limits, self.queues.costs(), self.suspected, self.last_served);
        let Some(mut shares) = shares else {
            self.queues.take(None, &mut taken);
            return taken;
        };
        self.last_served = shares.last_served;
        if let Some(from) = shares.in_pieces {
            self.check_piece(from, costs, refused);
        }
        self.queues.take(Some(&mut shares), &mut taken);
        self.paused = self.limits.paused(self.queues.costs());
        taken
    }

    /// Checks a piece of a suspect's first message, which costs more than a suspect's share of a run. When the rest costs
    /// less, a later run checks it like any other message.
    fn check_piece(&mut self, from: ReplicaId, costs: &mut CheckCosts<'_>, refused: &mut Vec<RefusedFrame>) {
        let Some(waiting) = self.queues.first(from) else { return };
        let rest = waiting.checks.len().saturating_sub(SUSPECT_CHECKS_MAX);
        let piece = waiting.checks.split_off(rest);
        if self.verdicts(piece.iter(), costs).contains(&false) {
            refused.extend(self.queues.pop(from).map(|waiting| bad_signature(from, &waiting.message)));
        } else {
            self.queues.lessen(from, SUSPECT_COST_MAX);
        }
    }

    fn remember(&mut self, certificates: Vec<Digest>) {
        for digest in certificates {
            if self.certificates.len() >= CERTIFICATES_REMEMBERED_MAX {
                self.certificates.pop_first();
            }
            self.certificates.insert(digest);
        }
    }
}

fn bad_signature(from: ReplicaId, message: &CheckedMessage) -> RefusedFrame {
    RefusedFrame::breach(FrameSource::Peer(from), kind_of(message), "bad signature")
}

/// Returns the kind of a message.
pub(super) fn kind_of(message: &CheckedMessage) -> Kind {
    match message {
        CheckedMessage::Protocol(message) => message.kind(),
        CheckedMessage::Host(message) => message.kind(),
    }
}
