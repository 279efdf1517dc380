//! Protocols in the simulator: the scenarios of their specifications, what happens when a machine loses power at
//! any step, thousands of random runs, and whether the oracles that judge all of this can be fooled.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::as_conversions,
    reason = "tests: a panic is how they fail"
)]

mod attacks;
mod byzantine;
mod chained;
mod chained_flaws;
mod chained_hotstuff2;
mod chained_liars;
mod chained_museum;
mod chained_schedules;
mod chained_support;
mod clients;
mod conformance;
mod crashes;
mod echo;
mod faults;
mod good_case;
mod museum;
mod network;
mod new_views;
mod opt_scenarios;
mod opt_schedules;
mod oracles;
mod puppets;
mod replay;
mod rotating;
mod rotating_scenarios;
mod scripts;
mod seeds;
mod side_by_side;
mod states;
mod support;
mod sync_beyond;
mod sync_cold;
mod sync_flaws;
mod sync_lies;
mod sync_museum;
mod sync_plot;
mod sync_power;
mod sync_scenarios;
mod sync_schedules;
mod sync_stage;
mod sync_unshown;
mod sync_waits;
mod synchronous;
mod synchrony;
mod traces;
mod twins;
mod view_change;
mod view_crashes;
