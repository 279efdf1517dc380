//! The stop of a node by the admin of its cluster: for tests, and only where the configuration of the node allows it.

use super::Node;
use quorate_crypto::{Scheme, VerifyKey, stop_preimage};
use quorate_replica::ConnId;
use quorate_types::wire::{FromReplica, StopAnswer};
use quorate_types::{ClusterId, Incarnation, PublicKey, ReplicaId, Signature, Time};

/// The check of requests to stop, and whether one was accepted.
pub(super) struct StopGate {
    /// Whether `node.toml` allows a stop.
    is_allowed: bool,
    /// `None` if the admin's key is unusable: then no request has its signature.
    admin: Option<VerifyKey>,
    cluster: ClusterId,
    me: ReplicaId,
    incarnation: Incarnation,
    is_passed: bool,
}

impl StopGate {
    /// Returns the check of one incarnation of replica `me`.
    pub(super) fn new(
        is_allowed: bool,
        admin: PublicKey,
        cluster: ClusterId,
        (me, incarnation): (ReplicaId, Incarnation),
    ) -> Self {
        let admin = VerifyKey::register(Scheme::Ed25519, admin).ok();
        Self { is_allowed, admin, cluster, me, incarnation, is_passed: false }
    }

    /// Returns the answer to a request. The signature is checked last, because that costs most.
    pub(super) fn judge(&self, incarnation: Incarnation, signature: &Signature) -> StopAnswer {
        if !self.is_allowed {
            return StopAnswer::NotAllowed;
        }
        if incarnation != self.incarnation {
            return StopAnswer::OtherIncarnation;
        }
        let signed = stop_preimage(self.cluster, self.me, incarnation);
        match &self.admin {
            Some(admin) if admin.verify(&signed, signature) => StopAnswer::Accepted,
            Some(_) | None => StopAnswer::BadSignature,
        }
    }
}

/// The reason under which a refusal is counted; `None` for an accepted request.
const fn reason(answer: StopAnswer) -> Option<&'static str> {
    match answer {
        StopAnswer::Accepted => None,
        StopAnswer::NotAllowed => Some("stop not allowed"),
        StopAnswer::OtherIncarnation => Some("stop of another incarnation"),
        StopAnswer::BadSignature => Some("stop without the admin's signature"),
    }
}

impl Node {
    /// Whether the admin of the cluster has stopped the node.
    #[must_use]
    pub const fn is_stopped_by_admin(&self) -> bool {
        self.stop_gate.is_passed
    }

    /// Notes the answer to a request, and returns its message. A refused request is counted, and the node goes on.
    pub(super) fn answer_stop(&mut self, now: Time, conn: ConnId, answer: StopAnswer) -> FromReplica {
        match reason(answer) {
            None => self.stop_gate.is_passed = true,
            Some(reason) => {
                let origin = self.clients.origin(conn);
                if let Some(often) = self.rejects.count_due(now, origin, reason) {
                    tracing::warn!("request of {origin} to stop refused: {}{often}", answer.text());
                }
            }
        }
        FromReplica::Stop(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_crypto::{SigningKey, bundle_preimage};
    use quorate_types::{BundleDigest, Digest};

    const CLUSTER: ClusterId = ClusterId(Digest([7; 32]));
    const ME: (ReplicaId, Incarnation) = (ReplicaId(2), Incarnation(5));

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_seed(Scheme::Ed25519, [seed; 32])
    }

    #[test]
    fn only_the_admin_stops_this_incarnation_of_this_replica() {
        let gate = StopGate::new(true, key(1).public(), CLUSTER, ME);
        let signed =
            |seed, cluster, id, incarnation| key(seed).sign(&stop_preimage(cluster, id, incarnation));
        let (id, incarnation) = ME;
        let good = signed(1, CLUSTER, id, incarnation);
        assert_eq!(gate.judge(incarnation, &good), StopAnswer::Accepted);
        let foreign = ClusterId(Digest([8; 32]));
        let older = Incarnation(4);
        let bundle = bundle_preimage(CLUSTER, BundleDigest(Digest(stop_preimage(CLUSTER, id, incarnation))));
        for (case, signature) in [
            ("a forged signature", Signature([3; 64])),
            ("another key", signed(9, CLUSTER, id, incarnation)),
            ("another cluster", signed(1, foreign, id, incarnation)),
            ("another replica", signed(1, CLUSTER, ReplicaId(1), incarnation)),
            ("an earlier incarnation under the present number", signed(1, CLUSTER, id, older)),
            ("another domain", key(1).sign(&bundle)),
        ] {
            assert_eq!(gate.judge(incarnation, &signature), StopAnswer::BadSignature, "{case}");
        }
        let replayed = signed(1, CLUSTER, id, older);
        assert_eq!(gate.judge(older, &replayed), StopAnswer::OtherIncarnation, "a replay after a restart");
        let closed = StopGate::new(false, key(1).public(), CLUSTER, ME);
        assert_eq!(closed.judge(incarnation, &good), StopAnswer::NotAllowed);
        let keyless = StopGate::new(true, PublicKey([0; 32]), CLUSTER, ME);
        assert_eq!(keyless.judge(incarnation, &good), StopAnswer::BadSignature, "no valid admin key");
    }

    #[test]
    fn refusals_have_distinct_reasons_and_a_remedy() {
        let mut reasons: Vec<&str> = StopAnswer::ALL.into_iter().filter_map(reason).collect();
        reasons.dedup();
        assert_eq!(reasons.len(), StopAnswer::ALL.len() - 1);
        for answer in StopAnswer::ALL.into_iter().filter(|answer| reason(*answer).is_some()) {
            assert!(answer.text().contains("; "), "{answer:?} has no remedy");
        }
    }
}
