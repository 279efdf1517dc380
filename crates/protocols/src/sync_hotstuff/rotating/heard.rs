//! What is known of views: what was said in each, and whether anybody may rely on silence there; and the certificates that
//! still matter.
//!
//! Views follow each other faster than 2 Δ, so that the waits of many views run at the same time. A view is remembered
//! until its block is settled or nobody waits for it.

use super::words::Header;
use quorate_consensus::{Certificate, Signed};
use quorate_types::{BlockId, View};
use std::collections::BTreeMap;

/// How far the own vote in a view is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum OwnVote {
    /// None, or its wait is over.
    #[default]
    None,
    /// On its way to the disk.
    Cast,
    /// With all, or the header without it, and its 2 Δ run or are over.
    Waits,
}

/// A view.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard {
    /// The first header of its leader: the only one that is ever voted for.
    pub(super) first: Option<(BlockId, Signed<Header>)>,
    /// R5. Its leader has contradicted itself, or f + 1 blame it: silence says nothing, and no timer commits its block.
    pub(super) is_broken: bool,
    /// Whether two words of its leader were handed on.
    pub(super) is_shown: bool,
    /// For its first header.
    pub(super) vote: OwnVote,
    /// Whether that was sent to all, with the own vote or without one.
    pub(super) is_out: bool,
}

/// The certificate of a block, and whether this replica has shown it to all.
#[derive(Clone, Debug)]
struct Kept {
    certificate: Certificate,
    is_shown: bool,
}

/// Certificates by view and block. Two of one view show that its leader lies, and each may be gone on from.
#[derive(Clone, Debug)]
pub(super) struct Certificates {
    kept: BTreeMap<(View, BlockId), Kept>,
    /// The first one of the highest view.
    highest: Certificate,
}

impl Certificates {
    pub(super) fn new() -> Self {
        let genesis = Certificate::genesis(super::super::message::VOTE);
        let kept = Kept { certificate: genesis.clone(), is_shown: true };
        Self { kept: BTreeMap::from([((View::ZERO, BlockId::ZERO), kept)]), highest: genesis }
    }

    /// Keeps one; true when it is new.
    pub(super) fn add(&mut self, certificate: &Certificate) -> bool {
        let place = (certificate.view(), certificate.block());
        if self.kept.contains_key(&place) {
            return false;
        }
        self.kept.insert(place, Kept { certificate: certificate.clone(), is_shown: false });
        // R2. §11, 1: the rank of a certificate is its view.
        if certificate.view() > self.highest.view() {
            self.highest = certificate.clone();
        }
        true
    }

    /// The highest one.
    pub(super) fn highest(&self) -> &Certificate {
        &self.highest
    }

    /// That of a block.
    pub(super) fn get(&self, view: View, block: BlockId) -> Option<&Certificate> {
        self.kept.get(&(view, block)).map(|kept| &kept.certificate)
    }

    /// Those of a view.
    pub(super) fn of_view(&self, view: View) -> impl Iterator<Item = &Certificate> {
        let from = self.kept.range((view, BlockId::ZERO)..);
        from.take_while(move |((of, _), _)| *of == view).map(|(_, kept)| &kept.certificate)
    }

    /// All, highest view first.
    pub(super) fn down(&self) -> impl Iterator<Item = &Certificate> {
        self.kept.values().rev().map(|kept| &kept.certificate)
    }

    /// Whether it has to be shown to all; true once.
    pub(super) fn must_show(&mut self, certificate: &Certificate) -> bool {
        let kept = self.kept.get_mut(&(certificate.view(), certificate.block()));
        kept.is_some_and(|kept| !std::mem::replace(&mut kept.is_shown, true))
    }

    /// Whether all have that of a block, or will.
    pub(super) fn is_shown(&self, view: View, block: BlockId) -> bool {
        self.kept.get(&(view, block)).is_some_and(|kept| kept.is_shown)
    }

    /// Forgets what no view rests on any more.
    pub(super) fn retain(&mut self, matters: impl Fn(View) -> bool) {
        let highest = self.highest.view();
        self.kept.retain(|(view, _), _| *view == highest || matters(*view));
    }
}
