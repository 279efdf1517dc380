//! Sync HotStuff and Opt Sync without the second protection of a timer's commit: that its certificate was shown to all (S7).
//! With it most single flaws of the museum fork nothing; without it each rule has to hold.

use quorate_consensus::flawed::Flaw;
use quorate_consensus::{AttackEntry, Auth, Claims, Effect, Past, Seal, Timers, To, Window};
use quorate_protocols::sync_hotstuff::{SyncHotStuff, SyncMessage, SyncRecord, Timer, Variant};
use quorate_types::{ReplicaId, Time};

/// No other flaw.
#[derive(Default)]
pub(crate) struct NothingElse;

impl<V: Variant> Flaw<SyncHotStuff<V>> for NothingElse {}

/// A flaw, in replicas that show certificates only to peers that have asked.
#[derive(Default)]
pub(crate) struct HiddenCertificates<F>(F);

impl<V: Variant, F: Flaw<SyncHotStuff<V>>> Flaw<SyncHotStuff<V>> for HiddenCertificates<F> {
    const ATTACKS: &'static [AttackEntry] = F::ATTACKS;

    fn opens(&mut self, me: ReplicaId, past: &mut Past<SyncRecord>) {
        self.0.opens(me, past);
    }

    fn claims(message: &SyncMessage, claims: &mut Claims<'_>) {
        F::claims(message, claims);
    }

    fn auth(message: &SyncMessage) -> Auth {
        F::auth(message)
    }

    fn hears(&mut self, protocol: &SyncHotStuff<V>, message: SyncMessage, seal: &Seal) -> Vec<SyncMessage> {
        self.0.hears(protocol, message, seal)
    }

    fn hears_timer(&mut self, protocol: &SyncHotStuff<V>, timer: Timer) -> bool {
        self.0.hears_timer(protocol, timer)
    }

    fn says(&mut self, protocol: &SyncHotStuff<V>, to: &mut To, message: &mut SyncMessage) -> bool {
        let is_shown = *to == To::All && matches!(message, SyncMessage::Certified(_));
        !is_shown && self.0.says(protocol, to, message)
    }

    fn wants(&mut self, protocol: &SyncHotStuff<V>, effects: &mut Vec<Effect>) {
        self.0.wants(protocol, effects);
    }

    fn clock(&mut self, protocol: &SyncHotStuff<V>, timer: Timer, now: Time) -> Time {
        self.0.clock(protocol, timer, now)
    }

    fn sets_timers(&mut self, protocol: &SyncHotStuff<V>, now: Time, timers: &mut Timers<Timer>) {
        self.0.sets_timers(protocol, now, timers);
    }

    fn fresh(fresh: Time) -> Time {
        F::fresh(fresh)
    }

    fn acts(&mut self, protocol: &SyncHotStuff<V>, now: Time, effects: &mut Vec<Effect>) {
        self.0.acts(protocol, now, effects);
    }

    fn window(&self, window: Window) -> Window {
        self.0.window(window)
    }
}
