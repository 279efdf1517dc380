//! The relay test: its figures, and refused arguments.

use crate::support::quorate;
use serde_json::Value;

#[test]
fn figures_are_those_of_the_named_test() {
    for (more, link_auth, driver) in [
        (&[][..], "tls", "reactor"),
        (&["--plain"], "plain", "reactor"),
        (&["--link-auth", "plain", "--mesh"], "plain", "mesh"),
    ] {
        let ran =
            quorate(&[&["relay", "--n", "3", "--rounds", "25", "--bytes", "7", "--json"], more].concat());
        assert_eq!(ran.code, Some(0), "{more:?}: {}", ran.err);
        let figures: Value = serde_json::from_str(&ran.out).unwrap();
        let expected = serde_json::json!({
            "n": 3, "rounds": 20, "bytes": 7, "link_auth": link_auth, "driver": driver,
        });
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(&figures[name], value, "{more:?}: {name}");
        }
        let number = |name: &str| figures[name].as_f64().unwrap();
        let times = ["round_min_us", "round_us", "round_max_us"].map(number);
        assert!(times[0] > 0.0 && times[0] <= times[1] && times[1] <= times[2], "{times:?}");
        assert_eq!(figures.get("writes_per_round").is_some(), driver == "reactor", "{figures}");
    }
}

#[test]
fn impossible_tests_are_refused() {
    quorate(&["relay", "--n", "1"]).refuses("no follower", &["--n 1", "at least one other node"]);
    for line in [&["--rounds", "9"][..], &["--bytes", "0"], &["--plain", "--link-auth", "tls"]] {
        let ran = quorate(&[&["relay"], line].concat());
        assert_eq!(ran.code, Some(2), "{line:?}: {} {}", ran.out, ran.err);
    }
}
