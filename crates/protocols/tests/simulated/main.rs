//! Protocols in the simulator: the scenarios of their specifications, power cuts at any step, and thousands of random
//! runs. Other tests show that the oracles of these runs cannot be fooled.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::as_conversions,
    reason = "tests: a panic is how they fail"
)]

mod amnesia;
mod amnesia_steps;
mod apollo;
mod apollo_flaws;
mod apollo_run;
mod apollo_schedules;
mod artemis;
mod artemis_flaws;
mod artemis_run;
mod artemis_schedules;
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
mod controlled;
mod crashes;
mod damaged_files;
mod differing_states;
mod echo;
mod faults;
mod fewest;
mod full_disk;
mod good_case;
mod lesson_flaws;
mod lessons;
mod long_forms;
mod museum;
mod network;
mod new_views;
mod opt_scenarios;
mod opt_schedules;
mod oracles;
mod power_with_transfer;
mod replay;
mod return_flaws;
mod return_museum;
mod roll_back;
mod rotating;
mod rotating_scenarios;
mod scripts;
mod seeds;
mod side_by_side;
mod silent_costs;
mod support;
mod sync_beyond;
mod sync_cold;
mod sync_exact_world;
mod sync_flaws;
mod sync_hidden_certificates;
mod sync_lies;
mod sync_museum;
mod sync_planned_run;
mod sync_power;
mod sync_scenarios;
mod sync_schedules;
mod sync_short_waits;
mod synchronous;
mod synchrony;
mod traces;
mod transfers;
mod twins;
mod view_change;
mod view_crashes;
