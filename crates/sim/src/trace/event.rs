//! What happened, as lines and drawings need it: one [`Event`] for each transition.

use super::transits::Transit;
use super::who::Who;
use crate::frame::{BUNDLE, Content, PAYLOAD, UNKNOWN};
use quorate_types::{Height, Time, View};

/// One thing that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// When.
    pub at: Time,
    /// Who did it, or to whom it happened.
    pub who: Who,
    /// What it was, as [`crate::trace::EVENT_NAMES`] lists it.
    pub what: &'static str,
    /// Of a message, a fault or a link: its number. What is sent and what arrives of it have the same.
    pub number: Option<u64>,
    /// The rest.
    pub details: EventDetails,
}

/// What an event is about. What does not apply is empty.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct EventDetails {
    /// Where it comes from, where that is somebody else.
    pub from: Option<Who>,
    /// For whom it is.
    pub to: Vec<Who>,
    /// The kind of the message, or of whatever else.
    pub kind: String,
    /// Of which view.
    pub view: Option<View>,
    /// Of which height.
    pub height: Option<Height>,
    /// The beginning of the digest of what it speaks of.
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
    /// About something that is only text.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// About something of this kind.
    pub(crate) fn kind(kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), ..Self::default() }
    }

    /// About a message.
    pub(crate) fn of(content: &Content) -> Self {
        // Only messages of protocols have a view; the genesis block is spoken of by none.
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

    /// Says something before everything else.
    pub(crate) fn first(self, text: &str) -> Self {
        let rest = self.text.clone();
        Self { text: text.to_owned(), ..self }.and(&rest)
    }

    /// Adds to what is said.
    pub(crate) fn and(mut self, text: &str) -> Self {
        if !self.text.is_empty() && !text.is_empty() {
            self.text.push_str(", ");
        }
        self.text.push_str(text);
        self
    }
}
