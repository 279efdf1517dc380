//! Events of a run, for lines and drawings.

use super::transits::Transit;
use super::who::Who;
use crate::frame::{BUNDLE, Content, PAYLOAD, UNKNOWN};
use quorate_types::{Height, Time, View};

/// An event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The time.
    pub at: Time,
    /// The actor, or the one that the event happens to.
    pub who: Who,
    /// The name, as [`crate::trace::EVENT_NAMES`] lists it.
    pub what: &'static str,
    /// The number of a message, a fault or a link. A message has the same number at its departure and its arrival.
    pub number: Option<u64>,
    /// All other details.
    pub details: EventDetails,
}

/// The details of an event. Details that do not apply are empty.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct EventDetails {
    /// The sender, where it is not the actor.
    pub from: Option<Who>,
    /// The receivers.
    pub to: Vec<Who>,
    /// The kind of the message, fault or note.
    pub kind: String,
    /// The view.
    pub view: Option<View>,
    /// The height.
    pub height: Option<Height>,
    /// The first digits of the subject's digest.
    pub subject: String,
    /// Everything else, on one line.
    pub text: String,
    pub(crate) transit: Transit,
}

impl From<String> for EventDetails {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

impl EventDetails {
    /// Returns details that consist of a text only.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Returns details about something of this kind.
    pub(crate) fn kind(kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), ..Self::default() }
    }

    /// Returns details about a message.
    pub(crate) fn of(content: &Content) -> Self {
        // Only messages of protocols have a view, and none is about the genesis block.
        let is_plain = [BUNDLE, PAYLOAD, UNKNOWN].contains(&content.kind);
        let is_host = content.kind.as_str().starts_with("host.");
        Self {
            kind: content.kind.as_str().to_owned(),
            view: (!is_plain && !is_host).then_some(content.view),
            height: (content.height > Height::ZERO).then_some(content.height),
            subject: content.statement.map(|statement| statement.subject.short()).unwrap_or_default(),
            ..Self::default()
        }
    }

    pub(crate) fn from(mut self, who: Who) -> Self {
        self.from = Some(who);
        self
    }

    pub(crate) fn to(mut self, whom: impl IntoIterator<Item = Who>) -> Self {
        self.to = whom.into_iter().collect();
        self
    }

    pub(crate) fn at(mut self, view: Option<View>, height: Option<Height>) -> Self {
        (self.view, self.height) = (view, height);
        self
    }

    pub(crate) fn about(mut self, subject: impl Into<String>) -> Self {
        self.subject = subject.into();
        self
    }

    pub(crate) fn transit(mut self, transit: Transit) -> Self {
        self.transit = transit;
        self
    }

    /// Puts a text before the others.
    pub(crate) fn first(self, text: &str) -> Self {
        let rest = self.text.clone();
        Self { text: text.to_owned(), ..self }.and(&rest)
    }

    /// Appends a text.
    pub(crate) fn and(mut self, text: &str) -> Self {
        if !self.text.is_empty() && !text.is_empty() {
            self.text.push_str(", ");
        }
        self.text.push_str(text);
        self
    }
}
