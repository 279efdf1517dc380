//! Checks of the bundles that clients and peers hand over.

use super::bundle_queues::{BundleQueues, WaitingBundle};
use super::client_keys::ClientKeys;
use super::outcome::{CheckCosts, FrameSource, Passed, RefusedFrame};
use crate::clients::{Admission, Admit};
use crate::host_message::BUNDLE_KIND;
use crate::input::Input;
use crate::pool;
use crate::replica::Replica;
use quorate_crypto::{Batch, Scheme, bundle_preimage};
use quorate_types::wire::Refusal;
use quorate_types::{Authenticator, Bundle, BundleDigest, ClientAuth, ClientId, ClusterId, ReplicaSet};
use std::collections::BTreeMap;

/// Signatures of bundles in one batch at most: the best size where four replicas share two cores.
const BATCH_MAX: usize = 256;
/// Size of the batches for clients that have sent a bad signature lately.
const SUSPECT_BATCH_MAX: usize = 8;
/// Good bundles after which a client is no longer suspected.
const SUSPECT_PENANCE: u32 = 64;
/// Clients that are suspected at most.
const SUSPECTS_MAX: usize = 1_024;

/// See the module.
pub(super) struct BundleChecks {
    cluster: ClusterId,
    client_auth: ClientAuth,
    scheme: Scheme,
    keys: ClientKeys,
    pub(super) queues: BundleQueues,
    /// The batch that is being checked, each bundle with whether it will count as pending; empty between batches.
    batch: Vec<(WaitingBundle, bool)>,
    /// Bundles of this run whose authenticators hold. A client may hand its bundle to all replicas, and each of them may spread it:
    /// copies that arrive before the replica has the bundle are not checked again.
    checked: BTreeMap<BundleDigest, Authenticator>,
    /// Clients that have sent a bad signature, with the good bundles that still clear them.
    suspects: BTreeMap<ClientId, u32>,
    /// Peers whose payloads pass in this run, before their bundles are checked. The replica has not seen these payloads
    /// yet, and blocks may need the bundles behind them.
    bringing: ReplicaSet,
}

/// Sinks of a run of checks.
pub(super) struct BundleRun<'r> {
    pub(super) replica: &'r Replica,
    pub(super) admit: &'r dyn Admit,
    pub(super) costs: CheckCosts<'r>,
    pub(super) refused: &'r mut Vec<RefusedFrame>,
    pub(super) out: &'r mut Passed,
}

impl BundleChecks {
    pub(super) fn new(cluster: ClusterId, client_auth: ClientAuth, scheme: Scheme) -> Self {
        Self {
            cluster,
            client_auth,
            scheme,
            keys: ClientKeys::default(),
            queues: BundleQueues::default(),
            batch: Vec::new(),
            checked: BTreeMap::new(),
            suspects: BTreeMap::new(),
            bringing: ReplicaSet::EMPTY,
        }
    }

    /// Begins a run: the replica has the bundles of the last one. Payloads of these peers pass in this run.
    pub(super) fn begin_run(&mut self, bringing: ReplicaSet) {
        self.checked.clear();
        self.bringing = bringing;
    }

    /// Takes the next bundles whose authenticators must be checked, and checks them in one batch.
    pub(super) fn run_batch(&mut self, run: &mut BundleRun<'_>) {
        let mut batch = std::mem::take(&mut self.batch);
        let (mut suspected, mut let_in) = (false, 0usize);
        while batch.len() < if suspected { SUSPECT_BATCH_MAX } else { BATCH_MAX } {
            let Some(next) = self.queues.front() else { break };
            let suspect = self.suspects.contains_key(&next.client());
            if !batch.is_empty() && suspect != suspected {
                break;
            }
            suspected = suspect;
            let Some(waiting) = self.queues.pop() else { break };
            if let Some(pending) = self.admit(&waiting, run, let_in) {
                // Unchecked bundles of peers keep no client out.
                let is_direct = matches!(waiting.source, FrameSource::Client(_));
                let_in = let_in.saturating_add(if is_direct { pool::cost(&waiting.bundle) } else { 0 });
                batch.push((waiting, pending));
            }
        }
        self.check(&mut batch, run);
        self.batch = batch;
    }

    /// Decides about a bundle as far as that needs no cryptography, after bundles of cost `let_in` were let in. Returns
    /// `Some` when its authenticator must be checked: whether the bundle then counts as pending.
    fn admit(&self, waiting: &WaitingBundle, run: &mut BundleRun<'_>, let_in: usize) -> Option<bool> {
        let WaitingBundle { source, bundle } = waiting;
        if run.replica.awaits(&bundle.digest()) {
            run.costs.ledger.cache_hits = run.costs.ledger.cache_hits.saturating_add(1);
            return None;
        }
        let admission = run.admit.admit(bundle);
        let is_new = admission == Admission::New;
        // The pool may have a body for blocks alone: from the log, or because it came before its session. Its client may
        // ask for it all the same and must receive an answer.
        if !is_new && matches!(source, FrameSource::Peer(_)) && run.replica.holds(&bundle.digest()) {
            run.costs.ledger.cache_hits = run.costs.ledger.cache_hits.saturating_add(1);
            return None;
        }
        if is_new && matches!(source, FrameSource::Client(_)) && run.replica.is_busy(bundle, let_in) {
            run.answer(*source, "busy", bundle, Refusal::Busy);
            return None;
        }
        if !is_new
            && let FrameSource::Peer(from) = source
            && !self.bringing.contains(*from)
            && !run.replica.has_room(*from, bundle)
        {
            run.refused.push(RefusedFrame::harmless(*from, BUNDLE_KIND, "no room for bundle"));
            return None;
        }
        let size = u64::try_from(bundle.size()).unwrap_or(0);
        if is_new || matches!(source, FrameSource::Peer(_)) {
            run.costs.ledger.body_bytes_new = run.costs.ledger.body_bytes_new.saturating_add(size);
            // A peer may hand over a body that does not count as pending, because a block may name it.
            return Some(is_new);
        }
        match admission {
            Admission::Executed(reply) => {
                if let FrameSource::Client(conn) = source {
                    run.out.replies.push((*conn, bundle.client(), *reply));
                }
            }
            Admission::NumberReused => run.answer(*source, "number reused", bundle, Refusal::NumberReused),
            Admission::Forgotten => run.answer(*source, "forgotten", bundle, Refusal::Forgotten),
            Admission::OutOfWindow => run.answer(*source, "out of window", bundle, Refusal::OutOfWindow),
            Admission::NoSession => run.answer(*source, "no session", bundle, Refusal::NoSession),
            Admission::Behind => run.answer(*source, "behind", bundle, Refusal::Behind),
            Admission::NotRegistered => {
                run.answer(*source, "not registered", bundle, Refusal::NotRegistered);
            }
            Admission::New => {}
        }
        None
    }

    fn check(&mut self, batch: &mut Vec<(WaitingBundle, bool)>, run: &mut BundleRun<'_>) {
        let verdicts = self.verdicts(batch, &mut run.costs);
        for ((WaitingBundle { source, bundle }, pending), holds) in batch.drain(..).zip(verdicts) {
            if !holds {
                self.suspect(bundle.client());
                run.answer(source, "bad signature", &bundle, Refusal::BadSignature);
                continue;
            }
            self.forgive(bundle.client());
            run.out.inputs.push(match source {
                FrameSource::Peer(from) => Input::Bundle { from, bundle, pending },
                FrameSource::Client(conn) => Input::Client(conn, bundle),
            });
        }
    }

    /// Returns for each bundle whether its authenticator holds.
    fn verdicts(&mut self, batch: &[(WaitingBundle, bool)], costs: &mut CheckCosts<'_>) -> Vec<bool> {
        if self.client_auth == ClientAuth::None {
            let is_open =
                |(waiting, _): &(WaitingBundle, bool)| *waiting.bundle.authenticator() == Authenticator::None;
            return batch.iter().map(is_open).collect();
        }
        if batch.is_empty() {
            return Vec::new();
        }
        let began = (costs.cpu_ns)();
        let is_new = self.first_copies(batch);
        let keys: Vec<_> =
            batch.iter().map(|(waiting, _)| self.keys.get(self.scheme, waiting.bundle.client())).collect();
        let mut signatures = Batch::with_capacity(batch.len());
        let signed = batch.iter().zip(&keys).zip(&is_new).map(|(((waiting, _), key), is_new)| {
            match (key, waiting.bundle.authenticator()) {
                (Some(key), Authenticator::Signature(signature)) if *is_new => {
                    Some((key, waiting, signature))
                }
                _ => None,
            }
        });
        for (key, waiting, signature) in signed.clone().flatten() {
            signatures.push(key, &bundle_preimage(self.cluster, waiting.bundle.digest()), signature);
        }
        let mut holds = signatures.check(costs.ledger).into_iter();
        let ns = (costs.cpu_ns)().saturating_sub(began);
        costs.ledger.client_check_ns = costs.ledger.client_check_ns.wrapping_add(ns);
        let verdicts = batch.iter().zip(signed).map(|((WaitingBundle { bundle, .. }, _), signed)| {
            if signed.is_some() && holds.next().unwrap_or(false) {
                self.checked.insert(bundle.digest(), bundle.authenticator().clone());
            }
            self.checked.get(&bundle.digest()) == Some(bundle.authenticator())
        });
        verdicts.collect()
    }

    /// Returns for each bundle whether it is the first one of its digest and authenticator in this run.
    fn first_copies(&self, batch: &[(WaitingBundle, bool)]) -> Vec<bool> {
        let mut firsts: BTreeMap<BundleDigest, &Authenticator> = BTreeMap::new();
        let mut first_copies = Vec::with_capacity(batch.len());
        for (WaitingBundle { bundle, .. }, _) in batch {
            let (digest, authenticator) = (bundle.digest(), bundle.authenticator());
            let known = self.checked.get(&digest).or_else(|| firsts.get(&digest).copied());
            first_copies.push(known != Some(authenticator));
            firsts.entry(digest).or_insert(authenticator);
        }
        first_copies
    }

    fn suspect(&mut self, client: ClientId) {
        if self.suspects.len() < SUSPECTS_MAX || self.suspects.contains_key(&client) {
            self.suspects.insert(client, SUSPECT_PENANCE);
        }
    }

    fn forgive(&mut self, client: ClientId) {
        if let Some(penance) = self.suspects.get_mut(&client) {
            *penance = penance.saturating_sub(1);
            if *penance == 0 {
                self.suspects.remove(&client);
            }
        }
    }
}

impl BundleRun<'_> {
    fn answer(&mut self, source: FrameSource, reason: &'static str, bundle: &Bundle, why: Refusal) {
        self.refused.push(RefusedFrame::bundle(source, reason, bundle, why));
    }
}
