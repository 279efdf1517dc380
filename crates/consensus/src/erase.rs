//! The one generic seam: a protocol behind a trait object. Generics stop here.

use crate::amnesia::Abstention;
use crate::attack::AttackEntry;
use crate::examined::{Choice, Examined, Healed};
use crate::figures::Figures;
use crate::host_view::{Env, Ready};
use crate::message::{Message, Seal, Verified};
use crate::pace::Pace;
use crate::parts::certificate::CheckpointProof;
use crate::past::{OpenError, Past};
use crate::protocol::{Cx, LinkEvent, Protocol};
use crate::record::{Record, RecordKey};
use crate::reject::Reject;
use crate::spec::{Spec, Synchrony};
use crate::status::{Status, Window};
use crate::timers::Timers;
use quorate_types::{
    BlockId, Committee, DecodeError, Floors, Height, Kind, OrderChain, Reader, ReplicaId, Signature, Time,
    View, Wire,
};
use std::any::Any;

/// A timer's due time and name, for status.
pub type Timed = (Time, String);

/// A protocol with erased types: one box and one virtual call per message.
pub trait AnyProtocol: Send {
    /// See [`Protocol::on_message`].
    ///
    /// # Errors
    /// The reject of the protocol.
    fn on_message(
        &mut self,
        env: &mut Env<'_>,
        link: ReplicaId,
        seal: Seal,
        message: Box<dyn Message>,
    ) -> Result<(), Reject>;
    /// Fires one timer that is due, in the order of (time, timer). Returns whether there was one.
    fn fire(&mut self, env: &mut Env<'_>, due: Time) -> bool;
    /// See [`Protocol::on_ready`].
    fn on_ready(&mut self, env: &mut Env<'_>, block: BlockId, how: Ready);
    /// See [`Protocol::on_pending`].
    fn on_pending(&mut self, env: &mut Env<'_>);
    /// See [`Protocol::on_executed`].
    fn on_executed(&mut self, env: &mut Env<'_>, height: Height, fresh: u32);
    /// See [`Protocol::on_decided`].
    fn on_decided(&mut self, env: &mut Env<'_>, height: Height, block: BlockId);
    /// See [`Protocol::on_checkpoint`].
    fn on_checkpoint(&mut self, env: &mut Env<'_>, stable: &CheckpointProof);
    /// See [`Protocol::on_link`].
    fn on_link(&mut self, env: &mut Env<'_>, peer: ReplicaId, what: LinkEvent);
    /// See [`Protocol::on_sound`].
    fn on_sound(&mut self, env: &mut Env<'_>);
    /// See [`Protocol::show`].
    fn show(&mut self, env: &mut Env<'_>, peer: ReplicaId);
    /// See [`Protocol::proven_view`].
    fn proven_view(&self) -> View;
    /// See [`Protocol::shown_floors`].
    fn shown_floors(&self) -> Vec<(Kind, View)>;
    /// See [`Protocol::leave_view`].
    fn leave_view(&mut self, env: &mut Env<'_>);
    /// See [`Protocol::abstain`].
    fn abstain(&mut self, env: &mut Env<'_>) -> Abstention;
    /// See [`Protocol::remember`].
    fn remember(&mut self, env: &mut Env<'_>) -> bool;
    /// Returns the due time of the next timer.
    fn deadline(&self) -> Option<Time>;
    /// Returns the timers that are set, for status.
    fn timers(&self) -> Vec<Timed>;
    /// See [`Protocol::window`].
    fn window(&self) -> Window;
    /// See [`Protocol::floors`].
    fn floors(&self) -> Floors;
    /// See [`Protocol::status`].
    fn status(&self) -> Status;
    /// See [`Protocol::order_chain`].
    fn order_chain(&self, committee: &Committee, block: BlockId) -> Option<OrderChain>;
}

struct Erased<P: Protocol> {
    protocol: P,
    timers: Timers<P::Timer>,
}

impl<P: Protocol> AnyProtocol for Erased<P> {
    fn on_message(
        &mut self,
        env: &mut Env<'_>,
        link: ReplicaId,
        seal: Seal,
        message: Box<dyn Message>,
    ) -> Result<(), Reject> {
        let any: Box<dyn Any> = message;
        // The host decodes with this entry's own function, so another type never gets here.
        let Ok(message) = any.downcast::<P::Message>() else {
            return Err(Reject::Invalid("type"));
        };
        let mut cx = Cx::new(env, &mut self.timers);
        self.protocol.on_message(&mut cx, Verified::new(*message, link, seal))
    }
    fn fire(&mut self, env: &mut Env<'_>, due: Time) -> bool {
        let Some(timer) = self.timers.pop_due(due) else {
            return false;
        };
        self.protocol.on_timer(&mut Cx::new(env, &mut self.timers), timer);
        true
    }
    fn on_ready(&mut self, env: &mut Env<'_>, block: BlockId, how: Ready) {
        self.protocol.on_ready(&mut Cx::new(env, &mut self.timers), block, how);
    }
    fn on_pending(&mut self, env: &mut Env<'_>) {
        self.protocol.on_pending(&mut Cx::new(env, &mut self.timers));
    }
    fn on_executed(&mut self, env: &mut Env<'_>, height: Height, fresh: u32) {
        self.protocol.on_executed(&mut Cx::new(env, &mut self.timers), height, fresh);
    }
    fn on_decided(&mut self, env: &mut Env<'_>, height: Height, block: BlockId) {
        self.protocol.on_decided(&mut Cx::new(env, &mut self.timers), height, block);
    }
    fn on_checkpoint(&mut self, env: &mut Env<'_>, stable: &CheckpointProof) {
        self.protocol.on_checkpoint(&mut Cx::new(env, &mut self.timers), stable);
    }
    fn on_link(&mut self, env: &mut Env<'_>, peer: ReplicaId, what: LinkEvent) {
        self.protocol.on_link(&mut Cx::new(env, &mut self.timers), peer, what);
    }
    fn on_sound(&mut self, env: &mut Env<'_>) {
        self.protocol.on_sound(&mut Cx::new(env, &mut self.timers));
    }
    fn show(&mut self, env: &mut Env<'_>, peer: ReplicaId) {
        self.protocol.show(&mut Cx::new(env, &mut self.timers), peer);
    }
    fn proven_view(&self) -> View {
        self.protocol.proven_view()
    }
    fn shown_floors(&self) -> Vec<(Kind, View)> {
        self.protocol.shown_floors()
    }
    fn leave_view(&mut self, env: &mut Env<'_>) {
        self.protocol.leave_view(&mut Cx::new(env, &mut self.timers));
    }
    fn abstain(&mut self, env: &mut Env<'_>) -> Abstention {
        self.protocol.abstain(&mut Cx::new(env, &mut self.timers))
    }
    fn remember(&mut self, env: &mut Env<'_>) -> bool {
        self.protocol.remember(&mut Cx::new(env, &mut self.timers))
    }
    fn deadline(&self) -> Option<Time> {
        self.timers.deadline()
    }
    fn timers(&self) -> Vec<Timed> {
        self.timers.entries().into_iter().map(|(time, timer)| (time, format!("{timer:?}"))).collect()
    }
    fn window(&self) -> Window {
        self.protocol.window()
    }
    fn floors(&self) -> Floors {
        self.protocol.floors()
    }
    fn status(&self) -> Status {
        self.protocol.status()
    }
    fn order_chain(&self, committee: &Committee, block: BlockId) -> Option<OrderChain> {
        self.protocol.order_chain(committee, block)
    }
}

type OpenFn = fn(&mut Env<'_>, &toml::Table, Past<Vec<u8>>) -> Result<Box<dyn AnyProtocol>, OpenError>;
type DecodeFn = fn(&mut Reader<'_>) -> Result<Box<dyn Message>, DecodeError>;
type RecordFn = fn(&[u8]) -> Result<(RecordKey, Vec<u8>), DecodeError>;

/// A protocol in the registry.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Properties of the protocol.
    pub spec: Spec,
    /// See [`Examined::FIGURES`].
    pub figures: Option<Figures>,
    /// See [`Examined::pace`].
    pub pace: fn(&toml::Table) -> Result<Option<Pace>, OpenError>,
    /// Opens the protocol. Missing parameters have their defaults; unknown ones are refused.
    pub open: OpenFn,
    /// Decodes one message and leaves the bytes behind it in the reader.
    pub decode: DecodeFn,
    /// Decodes a record and encodes it again: its key, and the same bytes where a record has one encoding.
    pub record: RecordFn,
    /// Returns the parameters with their defaults.
    pub params: fn() -> Result<toml::Table, OpenError>,
    /// See [`Examined::EXAM_ONLY`].
    pub exam_only: &'static [&'static str],
    /// See [`Examined::CHOICES`].
    pub choices: &'static [Choice],
    /// See [`Examined::recovery`].
    pub recovery: fn(&toml::Table, &Committee, &Healed) -> Result<Time, OpenError>,
    /// See [`Examined::exam_params`].
    pub exam_params: fn(delta_ns: u64, guarded: bool) -> Result<toml::Table, OpenError>,
    /// See [`Examined::ATTACKS`].
    pub attacks: &'static [AttackEntry],
    /// See [`Protocol::synchrony`].
    pub synchrony: fn(&toml::Table) -> Result<Option<Synchrony>, OpenError>,
    /// See [`Protocol::PROVES_ORDER`].
    pub proves_order: bool,
}

impl Entry {
    /// Returns the entry of a protocol.
    /// Returns the smallest n that tolerates f faults.
    #[must_use]
    pub fn smallest(&self, f: usize) -> usize {
        (1..quorate_types::limits::REPLICAS_MAX).find(|n| (self.spec.faults)(*n) >= f).unwrap_or(1)
    }

    /// The entry of a protocol.
    #[must_use]
    pub const fn of<P: Examined>() -> Self {
        Self {
            spec: P::SPEC,
            figures: P::FIGURES,
            pace: |params| Ok(P::pace(&read::<P>(params)?)),
            open: open::<P>,
            decode: |reader| Ok(Box::new(P::Message::decode(reader)?)),
            record: record::<P>,
            attacks: P::ATTACKS,
            params: || table(&P::Params::default()),
            exam_only: P::EXAM_ONLY,
            choices: P::CHOICES,
            recovery: |params, committee, healed| Ok(P::recovery(&read::<P>(params)?, committee, healed)),
            exam_params: |delta_ns, guarded| table(&P::exam_params(delta_ns, guarded)),
            synchrony: |params| Ok(P::synchrony(&read::<P>(params)?)),
            proves_order: P::PROVES_ORDER,
        }
    }

    /// Decodes a message that fills `bytes`, without its sender's signature.
    ///
    /// # Errors
    /// Bytes that are not the encoding of a message.
    pub fn decode_message(&self, bytes: &[u8]) -> Result<Box<dyn Message>, DecodeError> {
        let mut reader = Reader::new(bytes);
        let message = (self.decode)(&mut reader)?;
        reader.finish()?;
        Ok(message)
    }

    /// Decodes the body of a frame: a message, followed by its sender's signature where the message is
    /// [`Auth::Signed`](crate::Auth::Signed).
    ///
    /// # Errors
    /// Bytes that are not the encoding of a message with its signature.
    pub fn decode_frame(&self, body: &[u8]) -> Result<(Box<dyn Message>, Option<Signature>), DecodeError> {
        let mut reader = Reader::new(body);
        let message = (self.decode)(&mut reader)?;
        let signature = match message.auth().is_signed() {
            true => Some(Signature::decode(&mut reader)?),
            false => None,
        };
        reader.finish()?;
        Ok((message, signature))
    }
}

fn bad_params(error: &impl ToString) -> OpenError {
    OpenError::Params { name: "(table)".to_owned(), expected: error.to_string() }
}

fn table<T: serde::Serialize>(params: &T) -> Result<toml::Table, OpenError> {
    toml::Table::try_from(params).map_err(|error| bad_params(&error))
}

fn read<P: Protocol>(given: &toml::Table) -> Result<P::Params, OpenError> {
    let mut merged = table(&P::Params::default())?;
    for (name, value) in given {
        match merged.get_mut(name) {
            Some(slot) => *slot = value.clone(),
            None => {
                let known: Vec<&str> = merged.keys().map(String::as_str).collect();
                let expected = format!("unknown; {} has {}", P::SPEC.name, known.join(", "));
                return Err(OpenError::Params { name: name.clone(), expected });
            }
        }
    }
    merged.try_into().map_err(|error| bad_params(&error))
}

fn open<P: Protocol>(
    env: &mut Env<'_>,
    params: &toml::Table,
    past: Past<Vec<u8>>,
) -> Result<Box<dyn AnyProtocol>, OpenError> {
    let params = read::<P>(params)?;
    let past = past.decode().map_err(|error| OpenError::Past(error.to_string()))?;
    let mut timers = Timers::default();
    let protocol = P::open(&mut Cx::new(env, &mut timers), params, past)?;
    Ok(Box::new(Erased { protocol, timers }))
}

fn record<P: Protocol>(bytes: &[u8]) -> Result<(RecordKey, Vec<u8>), DecodeError> {
    let record = P::Record::from_bytes(bytes)?;
    let mut written = Vec::with_capacity(bytes.len());
    record.encode(&mut written);
    Ok((record.key(), written))
}
