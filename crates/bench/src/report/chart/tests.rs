use super::*;
use plotters::coord::ranged1d::{BoldPoints, Ranged, ValueFormatter};

fn labels(axis: &Axis) -> Vec<String> {
    axis.key_points(BoldPoints(10)).iter().map(|value| axis.format_ext(value)).collect()
}

#[test]
fn ticks_are_round_numbers() {
    for (values, expected) in [
        (vec![0.7], "0 0.2 0.4 0.6 0.8"),
        (vec![1.0], "0 0.2 0.4 0.6 0.8 1"),
        (vec![12.0, 3.0], "0 2.5 5 7.5 10 12.5"),
        (vec![8_000.0], "0 2k 4k 6k 8k"),
        (vec![24_500.0], "0 5k 10k 15k 20k 25k"),
        (vec![1_234_567.0], "0 250k 500k 750k 1M 1.25M"),
        (vec![], "0 0.2 0.4 0.6 0.8 1"),
        (vec![0.0, f64::NAN], "0 0.2 0.4 0.6 0.8 1"),
    ] {
        assert_eq!(labels(&Axis::from_zero("x", values.clone())).join(" "), expected, "{values:?}");
    }
}

#[test]
fn ticks_of_logarithmic_axes_surround_the_values() {
    for (values, expected) in [
        (vec![3.0, 18.0], "2 5 10 20"),
        (vec![1.0, 1_000.0], "1 2 5 10 20 50 100 200 500 1k"),
        (vec![0.4, 90_000.0], "1 10 100 1k 10k 100k"),
        (vec![7.0], "5 10"),
        (vec![0.0, 5.0], "5 10"),
        (vec![], "1 2 5 10"),
    ] {
        let axis = Axis::logarithmic("x", &values);
        assert_eq!(labels(&axis).join(" "), expected, "{values:?}");
    }
}

#[test]
fn axis_of_measured_values_is_logarithmic_for_a_large_factor_alone() {
    for (values, is_logarithmic) in
        [(vec![1.0, 49.0], false), (vec![1.0, 51.0], true), (vec![0.0, 51.0], false), (vec![], false)]
    {
        let axis = Axis::measured("latency (ms)", &values);
        assert_eq!(axis.name().contains("log scale"), is_logarithmic, "{values:?}");
    }
}

#[test]
fn ticks_of_chosen_values_are_these_values_where_their_labels_have_room() {
    assert_eq!(labels(&Axis::chosen("n", &[4.0, 7.0, 10.0, 31.0], 700.0)), ["4", "7", "10", "31"]);
    assert_eq!(labels(&Axis::chosen("batch", &[1.0, 100.0, 1_000.0], 700.0)), ["1", "100", "1k"]);
    let crowded: Vec<f64> = (0..200).map(f64::from).collect();
    assert!(labels(&Axis::chosen("x", &crowded, 700.0)).len() < 10);
    assert_eq!(labels(&Axis::chosen("n", &[4.0], 700.0)), ["4"]);
}

#[test]
fn names_without_room_become_numbers_that_the_legend_explains() {
    let short = ["pbft", "hotstuff"].map(str::to_owned);
    let (axis, explained) = Axis::names("protocol", &short, 700.0);
    assert_eq!((labels(&axis), explained.len()), (short.to_vec(), 0));
    let long: Vec<String> = (0..12).map(|i| format!("a protocol with a long name {i}")).collect();
    let (axis, explained) = Axis::names("protocol", &long, 700.0);
    assert_eq!(labels(&axis).first().unwrap(), "1");
    assert_eq!(explained.last().unwrap(), "12: a protocol with a long name 11");
}

#[test]
fn values_lie_on_the_axis_whatever_they_are() {
    let absurd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1.0, 1e-300, 1e300, 5.0];
    for axis in [
        Axis::from_zero("x", absurd),
        Axis::with_room("x", &absurd),
        Axis::measured("x", &absurd),
        Axis::logarithmic("x", &absurd),
        Axis::chosen("x", &absurd, 700.0),
        Axis::names("x", &[], 700.0).0,
    ] {
        assert!(labels(&axis).len() < 60, "{axis:?}");
        for value in absurd {
            assert!((10..=110).contains(&axis.map(&value, (10, 110))), "{value} on {axis:?}");
        }
    }
}

#[test]
fn colours_of_counts_grow_lighter() {
    let light = |(r, g, b): (u8, u8, u8)| 0.299 * f64::from(r) + 0.587 * f64::from(g) + 0.114 * f64::from(b);
    let steps: Vec<f64> = (0..=20).map(|step| light(heat(f64::from(step) / 20.0))).collect();
    assert!(steps.is_sorted(), "{steps:?}");
    assert_eq!(heat(f64::NAN), heat(0.0));
}

#[test]
fn series_differ_in_colour_or_marker() {
    let mut seen = Vec::new();
    for series in 0..42 {
        let look = Look::of(series);
        let colour = look.colour();
        let shown = format!("{:?} {:?}", (colour.0, colour.1, colour.2), look.shape());
        assert!(!seen.contains(&shown), "series {series}: {shown}");
        seen.push(shown);
    }
}

#[test]
fn legend_is_complete_and_inside_the_picture() {
    for width in [Width::Wide, Width::Narrow] {
        legend_is_inside(width);
    }
}

fn legend_is_inside(width: Width) {
    let entry =
        |i: usize| Entry::new(Symbol::Series(Look::of(i)), format!("series {i} {}", "x".repeat(i + 1)));
    let chart = Chart { width, legend: (0..60).map(entry).collect(), ..Chart::default() };
    let svg = render(&chart).unwrap();
    for i in 0..60 {
        assert!(svg.contains(&format!("series {i}")), "{i}");
    }
    let height: f64 = svg.split("height=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
    for place in svg.split("<text x=\"").skip(1) {
        let mut numbers = place.split('"').filter_map(|part| part.parse::<f64>().ok());
        let (x, y) = (numbers.next().unwrap(), numbers.next().unwrap());
        assert!(x < f64::from(width.pixels()) && y < height, "{x}, {y} in a height of {height}");
    }
}

#[test]
fn long_text_has_several_lines() {
    let width = 10.0 * CHARACTER;
    for (text, expected) in [
        ("", vec![""]),
        ("short", vec!["short"]),
        ("two words of it", vec!["two words", "of it"]),
        ("abcdefghijklmnopqrstuvw xyz", vec!["abcdefghij", "klmnopqrst", "uvw xyz"]),
    ] {
        assert_eq!(lines(text, width), expected, "{text:?}");
    }
    assert_eq!(lines("abc", 0.0), ["a", "b", "c"]);
    let long = Entry::new(Symbol::Fault, "1: ".to_owned() + &"a fault of a replica; ".repeat(20) + "the end");
    let chart = Chart { title: "word ".repeat(60) + "last", legend: vec![long], ..Chart::default() };
    let svg = render(&chart).unwrap();
    assert!(svg.contains("the end\n") && svg.contains("last\n") && !svg.contains('…'), "{svg}");
}

#[test]
fn page_takes_its_own_colours() {
    let chart = Chart { title: "<a> & \"b\"\u{7}".to_owned(), ..Chart::default() };
    let svg = render(&chart).unwrap();
    let page = for_page(&svg, &chart.title);
    assert!(
        page.starts_with("<svg class=\"chart\" role=\"img\" aria-label=\"&lt;a&gt; &amp; &quot;b&quot;"),
        "{page}"
    );
    assert!(page.contains("fill=\"currentColor\"") && !page.contains("#17191C"), "{page}");
    assert!(page.contains("viewBox=\"0 0 800 ") && !page.contains("width=\"800\""), "{page}");
    assert!(!for_picture(&svg).contains('\u{7}'), "SVG has no control characters");
}
