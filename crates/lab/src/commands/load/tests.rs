use super::ranges::ALL;
use super::*;
use crate::load::{KeyDistribution, Pace, Spacing};
use clap::{CommandFactory, Parser};
use quorate_history::History;
use quorate_node::config::Settings;
use quorate_types::limits::{ATTACHED_PER_CONNECTION_MAX, BUNDLE_REQUESTS_CEILING, REQUEST_BYTES_CEILING};

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    args: LoadArgs,
}

fn options(line: &str) -> Result<LoadOptions, Failure> {
    let words = std::iter::once("load").chain(line.split_whitespace());
    let line = CommandLine::try_parse_from(words).map_err(|error| Failure::usage(error.to_string()))?;
    super::options(&line.args)
}

/// Checks that the options are refused as wrong usage, with all of these words.
fn refuses(line: &str, words: &[&str]) {
    let failure = options(line).map(|options| format!("{options:?}")).unwrap_err();
    assert_eq!(failure.code(), 2, "{line}: {failure}");
    for word in words {
        assert!(failure.to_string().contains(word), "{line}: expected {word:?} in {failure}");
    }
}

#[test]
fn ignored_option_is_refused() {
    for ignored in ["--keys 10000", "--read-share 0", "--reply-bytes 1", "--presign 0"] {
        let failure = options(&format!("--history x {ignored}")).unwrap_err();
        assert_eq!(failure.code(), 2);
        let name = ignored.split_whitespace().next().unwrap();
        let text = failure.to_string();
        assert!(text.contains("--history") && text.ends_with(&format!("leave out {name}")), "{text}");
    }
    for ignored in ["--keys 7", "--read-share 0", "--prefix x"] {
        assert!(options(&format!("--reply-bytes 1 {ignored}")).is_err(), "{ignored}");
    }
    assert!(options("--history x --request-bytes 64 --clients 3 --bundle 4 --rate 100 --prefix a/").is_ok());
    assert!(options("--reply-bytes 1 --presign 7 --warmup 0").is_ok());
    let plain = options("").unwrap();
    let mix = kv(KeyDistribution::Uniform);
    assert_eq!(format!("{:?}", plain.mix), format!("{mix:?}"));
}

fn kv(distribution: KeyDistribution) -> Mix {
    let prefix = "load/".to_owned();
    Mix::Kv { prefix, keys: 10_000, distribution, request_bytes: 128, reads_per_mille: 0 }
}

#[test]
fn zipf_has_an_exponent() {
    for (line, exponent) in [("", 0.99), ("--zipf-exponent 0", 0.0), ("--zipf-exponent 1.5", 1.5)] {
        let options = options(&format!("--key-distribution zipf {line}")).unwrap();
        assert_eq!(format!("{:?}", options.mix), format!("{:?}", kv(KeyDistribution::Zipf { exponent })));
    }
    refuses("--zipf-exponent 1", &["--key-distribution zipf", "leave out --zipf-exponent"]);
    refuses("--key-distribution uniform --zipf-exponent 1", &["leave out --zipf-exponent"]);
    refuses("--history x --key-distribution zipf", &["leave out --key-distribution"]);
    refuses("--reply-bytes 1 --key-distribution zipf", &["leave out --key-distribution"]);
}

#[test]
fn timeline_has_a_limited_number_of_intervals() {
    assert_eq!(options("").unwrap().timeline, None);
    let ms = std::time::Duration::from_millis;
    assert_eq!(options("--timeline 100ms --json").unwrap().timeline, Some(ms(100)));
    assert!(options("--timeline 100ms --json --seconds 1000").is_ok());
    assert!(options("--timeline 100ms").is_err(), "only the JSON has it");
    let advice = ["10001 such intervals", "at most 10000", "--timeline 101ms or longer", "--seconds"];
    refuses("--timeline 100ms --json --seconds 1000.01", &advice);
}

#[test]
fn load_without_options_is_an_open_loop_of_a_stated_rate() {
    assert_eq!(options("").unwrap().pace, Pace::constant(1_000.0));
    assert_eq!(options("--in-flight 7").unwrap().pace, Pace::Closed { in_flight: 7 });
    assert!(options("--in-flight 7 --rate 7").is_err(), "one of the two loops");
    assert!(options("--in-flight 7 --arrivals poisson").is_err(), "a closed loop has no gaps");
    let poisson = Pace::Open { rate: 5.0, spacing: Spacing::Poisson };
    assert_eq!(options("--rate 5 --arrivals poisson").unwrap().pace, poisson);
    let help = CommandLine::command().render_long_help().to_string();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in
        ["[default: 1000]", "Closed loop, in place of the open loop of --rate", "an open loop of 1,000"]
    {
        assert!(help.contains(words), "{words:?} in {help}");
    }
}

/// Options whose durations may be zero.
const DURATIONS: [&str; 2] = ["--warmup", "--drain"];

/// Further options that make the ends of a range possible.
fn beside(name: &str) -> &'static str {
    match name {
        "--rate" => "--warmup 0 --seconds 1000000",
        "--request-bytes" => "--reply-bytes 0",
        "--bundle" => "--in-flight 100000",
        "--zipf-exponent" => "--key-distribution zipf",
        "--timeline" => "--json",
        "--presign" => "--in-flight 1",
        "--seconds" | "--warmup" => "--rate 1000000",
        _ => "",
    }
}

#[test]
fn numbers_outside_the_range_of_the_help_are_refused() {
    let help = |name: &str| {
        let command = CommandLine::command();
        let arg = command.get_arguments().find(|arg| arg.get_long() == name.strip_prefix("--")).unwrap();
        arg.get_help().unwrap().to_string()
    };
    for range in ALL {
        let (name, said) = (range.name, range.to_string());
        assert!(help(name).contains(&said), "{name}: {said} in {}", help(name));
        let whole = range.least.fract() == 0.0
            && !["--read-share", "--zipf-exponent"].contains(&name)
            && !DURATIONS.contains(&name);
        let step = if whole { 1.0 } else { 0.0005 };
        for good in [range.least, range.most] {
            let line = format!("{name} {good} {}", beside(name));
            let taken = options(&line).map(|_| ());
            assert!(taken.is_ok(), "{line}: {taken:?}");
        }
        let below = (range.least > 0.0 || !whole).then_some(range.least - step);
        for bad in below.into_iter().chain([range.most + 1.0]).chain((range.least > 0.0).then_some(0.0)) {
            // No duration of any option is negative.
            let range = if bad < 0.0 && DURATIONS.contains(&name) { "expected a duration" } else { &said };
            refuses(&format!("{name} {bad} {}", beside(name)), &[name, range]);
        }
    }
    assert_eq!(options("").unwrap().drain, crate::load::DRAIN, "the default of the help");
    for (name, bad) in [("--rate", "nan"), ("--seconds", "inf"), ("--warmup", "nan"), ("--read-share", "nan")]
    {
        refuses(&format!("{name} {bad}"), &[name, "expected"]);
    }
}

/// Every option that takes a number is in the table, except for two, whose reasons are here.
#[test]
fn range_exists_for_every_number() {
    let command = CommandLine::command();
    let texts = [
        "cluster",
        "admin-key",
        "prefix",
        "history",
        "json",
        "send-to",
        "seed",
        "arrivals",
        "key-distribution",
        "stop-cluster",
        "help",
    ];
    for arg in command.get_arguments().filter_map(clap::Arg::get_long).filter(|arg| !texts.contains(arg)) {
        assert!(ALL.iter().any(|range| range.name == format!("--{arg}")), "--{arg}");
    }
    assert!(options(&format!("--seed {}", u64::MAX)).is_ok());
}

#[test]
fn ranges_match_the_limits() {
    let most = |name: &str| ALL.iter().find(|range| range.name == name).unwrap().most;
    let count = |count: usize| f64::from(u32::try_from(count).unwrap());
    assert_eq!(most("--clients").to_bits(), count(ATTACHED_PER_CONNECTION_MAX - 1).to_bits());
    assert_eq!(most("--bundle").to_bits(), f64::from(BUNDLE_REQUESTS_CEILING).to_bits());
    assert_eq!(most("--request-bytes").to_bits(), f64::from(REQUEST_BYTES_CEILING).to_bits());
    assert_eq!(most("--reply-bytes").to_bits(), f64::from(quorate_app::ECHO_BYTES_MAX).to_bits());
}

#[test]
fn conflicting_options_are_refused() {
    refuses("--bundle 100 --in-flight 10", &["--bundle 100", "--in-flight 100"]);
    refuses("--bundle 2 --in-flight 1", &["--bundle 2", "only 1"]);
    assert!(options("--bundle 100 --in-flight 100").is_ok() && options("--bundle 100 --rate 10").is_ok());
    refuses("--rate 0.1 --seconds 5", &["--rate 0.1", "from 3 s to 8 s"]);
    assert!(options("--rate 0.1 --seconds 5 --warmup 0").is_ok());
    refuses("--rate 0.001 --seconds 5 --arrivals poisson", &["--rate 0.001", "from 3 s to 8 s"]);
    let many = "--rate 10000000 --warmup 1000000 --arrivals poisson";
    assert!(options(many).is_ok(), "a check of few due times");
    refuses("--rate 100 --presign 300", &["--presign 300", "warm-up"]);
    assert!(options("--rate 100 --presign 301").is_ok());
    refuses("--request-bytes 18", &["--request-bytes 18", "19 bytes"]);
    assert!(options("--request-bytes 19").is_ok());
    refuses("--request-bytes 18 --keys 100 --prefix abcdefgh", &["20 bytes"]);
    refuses("--history x --request-bytes 40", &["--request-bytes 40"]);
    refuses(&format!("--request-bytes 4000 --prefix {}", "x".repeat(1_020)), &["--prefix", "1025", "1024"]);
    let words = ["load", "--prefix", "a\u{7}"];
    assert!(
        super::options(&CommandLine::try_parse_from(words).unwrap().args).is_err(),
        "a control character"
    );
}

fn cluster(change: impl FnOnce(&mut Genesis)) -> ClusterConfig {
    let folder = tempfile::tempdir().unwrap();
    let entry = quorate_protocols::find("pbft").unwrap();
    let dir = folder.path().join("cluster");
    let auth = quorate_types::ClientAuth::Signature;
    let testnet = crate::trial::make(&dir, Service::KV, entry, 4, auth, &Settings::default());
    let mut config = testnet.unwrap().cluster;
    change(&mut config.genesis);
    config
}

#[test]
fn value_above_a_limit_of_the_cluster_is_refused() {
    let config = cluster(|genesis| {
        genesis.bodies.request_bytes_max = 1_000;
        genesis.bodies.bundle_requests_max = 50;
        genesis.bodies.bundle_bytes_max = 5_000;
        genesis.bodies.reply_bytes_max = 4_000;
        genesis.client_window = 16;
    });
    for (line, words) in [
        ("--send-to 4", &["--send-to 4", "0 to 3"][..]),
        ("--send-to 9", &["--send-to 9", "0 to 3"]),
        ("--request-bytes 1001", &["--request-bytes", "1001", "request_bytes_max = 1000"]),
        ("--bundle 51 --in-flight 51 --request-bytes 20", &["--bundle 51", "bundle_requests_max = 50"]),
        ("--bundle 40 --in-flight 40", &["--bundle 40", "5337", "bundle_bytes_max = 5000"]),
        ("--reply-bytes 4001", &["--reply-bytes", "4001", "reply_bytes_max = 4000"]),
        ("--reply-bytes 500 --bundle 9 --in-flight 9", &["--bundle 9", "4500", "reply_bytes_max = 4000"]),
        ("--bundle 2 --in-flight 100 --clients 3", &["--in-flight 100", "at most 96", "client_window = 16"]),
    ] {
        let failure = ranges::check_cluster(&options(line).unwrap(), &config).unwrap_err();
        assert_eq!(failure.code(), 2, "{line}");
        for word in words {
            assert!(failure.to_string().contains(word), "{line}: expected {word:?} in {failure}");
        }
    }
    for line in
        ["", "--send-to 3", "--send-to all", "--request-bytes 1000", "--bundle 2 --in-flight 96 --clients 3"]
    {
        assert!(ranges::check_cluster(&options(line).unwrap(), &config).is_ok(), "{line}");
    }
    let failure = ranges::check_sessions(8, 4).unwrap_err();
    assert_eq!(failure.code(), 1, "the line is right for another cluster");
    assert!(failure.to_string().contains("clients_max = 4"), "{failure}");
    assert!(ranges::check_sessions(4, 4).is_ok());
}

#[test]
fn history_file_is_opened_first_and_replaced_last() {
    let folder = tempfile::tempdir().unwrap();
    let failure = HistoryOutput::open(&folder.path().join("none").join("x")).err().unwrap();
    assert!(failure.code() == 2 && failure.to_string().contains("No such file"), "{failure}");
    let file = folder.path().join("history");
    std::fs::write(&file, "an earlier history").unwrap();
    let mut output = HistoryOutput::open(&file).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "an earlier history");
    output.append(&History::default()).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "");
}

#[test]
fn incomplete_run_fails_with_its_reason() {
    let genesis = cluster(|genesis| genesis.clients_max = 4).genesis;
    let told = |summary: &LoadSummary| check(summary, &genesis, None).unwrap_err();
    assert!(check(&LoadSummary::of(100.0, 600, 600, &[]), &genesis, None).is_ok());
    let mut lost = LoadSummary::of(100.0, 20, 20, &[("SessionLost", 3)]);
    lost.counts.sessions_lost = 1;
    for (summary, words) in [
        (LoadSummary::of(100.0, 600, 230, &[]), &["not carried", "230 of 600", "38.3 %"][..]),
        (LoadSummary::of(100.0, 0, 0, &[]), &["no request was answered"]),
        (
            LoadSummary::of(100.0, 20, 20, &[("NoRoom", 11)]),
            &["11 of 31", "11 NoRoom", "reply_bytes_max = 1048576"],
        ),
        (lost, &["3 of 23", "3 SessionLost", "clients_max = 4"]),
    ] {
        let failure = told(&summary);
        assert_eq!(failure.code(), 1);
        for word in words {
            assert!(failure.to_string().contains(word), "expected {word:?} in {failure}");
        }
    }
}
