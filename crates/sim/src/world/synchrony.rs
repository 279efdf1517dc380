//! The world of a protocol with a bound on delays. Frames wait before they enter their link. A replica that has met a
//! fault which the protocol does not promise to survive is exempt from judgement.

use super::{Event, World};
use crate::frame::Frame;
use crate::queue::EventClass;
use crate::trace::Who;
use quorate_types::{ReplicaId, Time};

impl World {
    /// Delays a frame before it enters its link, if it has to wait. Returns whether it waits.
    pub(super) fn waits(&mut self, at: Time, frame: &Frame) -> bool {
        let conditions = self.network.map.get(frame.from.index(), frame.to.index());
        let is_late = conditions.later_ns > 0 || conditions.later_until > at;
        if self.settings.delays.is_none() && !is_late && !self.network.waits.is_used() {
            return false;
        }
        let faults = conditions.faults;
        let kind = (frame.lane, frame.content.is_once);
        let ends = (frame.from, frame.to);
        let enters = self.network.waits.enters(at, ends, kind, (self.settings.delays.as_ref(), conditions));
        if is_late {
            self.count_faults(faults);
        }
        let Some(enters) = enters else { return false };
        let life = self.slot(frame.from).map_or(0, |slot| slot.opens);
        let event = Event::Enters { frame: Box::new(frame.clone()), life };
        self.queue.push(enters, EventClass::Arrival, event);
        true
    }

    /// Puts a frame on its link after its wait, unless its sender has died since.
    pub(super) fn enter_after_wait(&mut self, frame: &Frame, life: u64) {
        let lives = self.slot(frame.from).is_some_and(|slot| slot.running.is_some() && slot.opens == life);
        if lives {
            self.enter(self.now, frame);
        } else {
            self.report_frame(self.now, "loses", frame, "its sender has died");
        }
    }

    /// Exempts a replica from judgement: the bound does not hold for it, and it counts among the f. Other replicas
    /// may not have what it commits by a timer.
    pub fn exempt(&mut self, id: ReplicaId) {
        if self.roles.exempt.insert(id) {
            self.trace.note(self.now, Who::Replica(id), "exempt", &[], || {
                "exempt from judgement from here on".to_owned()
            });
        }
    }
}
