//! Flaws of persistence that others have published. They need no particular protocol: they see kinds, views, statements and
//! records alone.

use quorate_consensus::flawed::Flaw;
use quorate_consensus::{Effect, Evidence, Message, Past, Protocol, RecordKey, Seal};
use quorate_protocols::chained::{Chained, ChainedRecord, Jolteon};
use quorate_protocols::pbft::{Pbft, PbftRecord, SUSPECT, VIEW_CHANGE, Variant};
use quorate_types::{Digest, Height, Incarnation, Kind, ReplicaId, Signature, Slot, Statement, View};
use std::collections::BTreeMap;

/// Entries of all protocols with the flaw, each with the sound protocol before it.
macro_rules! under_every_protocol {
    ($flaw:ty) => {{
        use quorate_consensus::{Entry, flawed::Flawed};
        use quorate_protocols::chained::{Chained, HotStuff, HotStuff2, Jolteon};
        use quorate_protocols::pbft::{AllSigned, Linked, Pbft};
        use quorate_protocols::sync_hotstuff::rotating::Rotating;
        use quorate_protocols::sync_hotstuff::{Optimistic, Plain, SyncHotStuff};
        use quorate_protocols::unique_chain::{Apollo, Artemis, UniqueChain};
        const fn pair<P: quorate_consensus::Examined>() -> (Entry, Entry)
        where
            $flaw: quorate_consensus::flawed::Flaw<P>,
        {
            let sound = Entry::of::<P>();
            (sound, Entry { attacks: sound.attacks, ..Entry::of::<Flawed<P, $flaw>>() })
        }
        [
            pair::<Pbft<Linked>>(),
            pair::<Pbft<AllSigned>>(),
            pair::<Chained<HotStuff>>(),
            pair::<Chained<Jolteon>>(),
            pair::<Chained<HotStuff2>>(),
            pair::<SyncHotStuff<Plain>>(),
            pair::<SyncHotStuff<Optimistic>>(),
            pair::<SyncHotStuff<Rotating>>(),
            pair::<UniqueChain<Apollo>>(),
            pair::<UniqueChain<Artemis>>(),
        ]
    }};
}
pub(crate) use under_every_protocol;

/// Whether a statement of this kind leaves a view: a VIEW-CHANGE, a TIMEOUT or a BLAME.
pub(crate) fn leaves_view(kind: Kind, statement: Option<Statement>, is_once: bool) -> bool {
    statement.is_some() && kind != SUSPECT && (!is_once || kind == VIEW_CHANGE)
}

/// P1: after a restart the own timeout of the view is not counted: the handler of received messages alone counts.
#[derive(Default)]
pub(crate) struct OwnTimeoutUncounted {
    /// This replica, after a restart.
    restarted: Option<ReplicaId>,
    /// The view of the first timeout since then.
    view: Option<View>,
}

impl<P: Protocol> Flaw<P> for OwnTimeoutUncounted {
    fn opens(&mut self, me: ReplicaId, past: &mut Past<P::Record>) {
        self.restarted = Some(me).filter(|_| past.incarnation > Incarnation(1));
    }

    fn hears(&mut self, _: &P, message: P::Message, seal: &Seal) -> Vec<P::Message> {
        let leaves = leaves_view(message.kind(), message.auth().statement(), message.once());
        if !leaves || self.restarted != Some(seal.by) {
            return vec![message];
        }
        let view = message.place().view;
        if *self.view.get_or_insert(view) == view { Vec::new() } else { vec![message] }
    }
}

/// P2: of each kind of record the last one counts, whatever its height, its view and its block.
#[derive(Default)]
pub(crate) struct LastOfEachKind;

impl<P: Protocol> Flaw<P> for LastOfEachKind {
    fn wants(&mut self, _: &P, effects: &mut Vec<Effect>) {
        for effect in effects {
            if let Effect::Record { key, .. } = effect {
                *key = RecordKey { kind: key.kind, height: Height::ZERO, scope: Digest::ZERO };
            }
        }
    }
}

/// P3: a stable checkpoint erases the record that a view was left.
#[derive(Default)]
pub(crate) struct TimeoutPruned;

impl<V: Variant> Flaw<Pbft<V>> for TimeoutPruned {
    fn opens(&mut self, _: ReplicaId, past: &mut Past<PbftRecord>) {
        if past.checkpoint.checkpoint.height > Height::ZERO {
            let is_of_view = |record: &PbftRecord| {
                matches!(
                    record,
                    PbftRecord::Entered { .. } | PbftRecord::ViewChange(_) | PbftRecord::NewView(_)
                )
            };
            past.records.retain(|record| !is_of_view(record));
        }
    }
}

impl Flaw<Chained<Jolteon>> for TimeoutPruned {
    fn opens(&mut self, _: ReplicaId, past: &mut Past<ChainedRecord<Jolteon>>) {
        if past.checkpoint.checkpoint.height > Height::ZERO {
            for record in &mut past.records {
                if let ChainedRecord::State { rules, .. } = record {
                    *rules = Jolteon::default();
                }
            }
        }
    }
}

/// P5: two timeouts of one replica in one view count as equivocation, also where the second one lists a later certificate.
#[derive(Default)]
pub(crate) struct ConvictsOfTimeouts {
    me: ReplicaId,
    first: BTreeMap<(ReplicaId, Kind, View), (Statement, Signature)>,
    found: Vec<Evidence>,
}

impl<P: Protocol> Flaw<P> for ConvictsOfTimeouts {
    fn opens(&mut self, me: ReplicaId, _: &mut Past<P::Record>) {
        self.me = me;
    }

    fn hears(&mut self, _: &P, message: P::Message, seal: &Seal) -> Vec<P::Message> {
        let (kind, statement) = (message.kind(), message.auth().statement());
        if let (Some(statement), Some(signature)) = (statement, seal.signature)
            && seal.by != self.me
            && leaves_view(kind, Some(statement), message.once())
        {
            let second = (statement, signature);
            let first = *self.first.entry((seal.by, kind, statement.view)).or_insert(second);
            if first.0 != statement {
                self.found.push(Evidence { by: seal.by, first, second });
            }
        }
        vec![message]
    }

    fn wants(&mut self, _: &P, effects: &mut Vec<Effect>) {
        effects.extend(self.found.drain(..).map(|evidence| Effect::Accuse(Box::new(evidence))));
    }
}

/// P6: an assertion that no slot has two statements of one replica.
#[derive(Default)]
pub(crate) struct AssertsUnique(BTreeMap<(ReplicaId, Slot), Digest>);

impl<P: Protocol> Flaw<P> for AssertsUnique {
    fn hears(&mut self, _: &P, message: P::Message, seal: &Seal) -> Vec<P::Message> {
        if let Some(statement) = message.auth().statement().filter(|_| message.once()) {
            let first = *self.0.entry((seal.by, statement.slot())).or_insert(statement.subject);
            assert_eq!(
                first,
                statement.subject,
                "{} of replica {} is unique",
                message.kind().as_str(),
                seal.by
            );
        }
        vec![message]
    }
}
