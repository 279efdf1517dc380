use super::source::{self, Item, functions, structs, tokens};
use super::*;

/// The rules hold for this repository on each run of the tests.
#[test]
fn the_repository_is_tidy() {
    let root = crate::root().unwrap();
    let repository = Repository::load(&root).unwrap();
    let mut findings = check(&repository).unwrap();
    lean::check(&lean::metadata(&root).unwrap(), &config(&repository).unwrap(), &mut findings);
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

/// Returns the quoted paths, as they stand in a clippy.toml.
fn walls() -> String {
    format!("{:?}", workspace::forbidden().collect::<Vec<_>>())
}

const PBFT: &str = "//! # PBFT
//!
//! | model | replicas | quorum | good-case latency | paper |
//!
//! ## Flow
//! ## Rules
//! ## Invariants
//! ## What survives a crash
//! ## Deviations from the paper
//! ## Not here
";

/// Returns the findings of a small tidy repository after a change.
fn findings(change: impl FnOnce(&mut BTreeMap<String, String>)) -> Findings {
    let wire = "//! The wire.";
    let hash = blake3::hash(wire.as_bytes()).to_hex();
    let manifest = "[dependencies]\nquorate-types.workspace = true\n[lints]\nworkspace = true";
    let registry = "pub static REGISTRY: &[Entry] = &[Entry::of::<pbft::Pbft>(), Entry::of::<echo::Echo>()];";
    let tidy = "members = ['crates/types', 'crates/protocols']\npure = ['types', 'protocols']\n\
                [edges]\ntypes = []\nprotocols = ['types']";
    let mut files: BTreeMap<String, String> = [
        ("tidy.toml", tidy),
        ("README.md", "# Title\n[wire](docs/wire.md#the-frame) [self](#title)\n```\n# no title\n```"),
        ("crates/types/Cargo.toml", "[lints]\nworkspace = true"),
        ("crates/types/clippy.toml", &walls()),
        ("crates/types/src/wire.rs", wire),
        ("crates/protocols/Cargo.toml", manifest),
        ("crates/protocols/clippy.toml", &walls()),
        ("crates/protocols/src/lib.rs", registry),
        ("crates/protocols/src/pbft/mod.rs", PBFT),
        ("crates/protocols/src/echo/mod.rs", PBFT),
    ]
    .map(|(path, text)| (path.to_owned(), text.to_owned()))
    .into();
    let document = format!("# Wire\n\n## The frame\n\nBLAKE3 of `crates/types/src/wire.rs`: `{hash}`\n");
    files.insert("docs/wire.md".to_owned(), document);
    change(&mut files);
    let paths = files.keys().cloned().collect();
    check(&Repository { files, paths }).unwrap()
}

fn add(path: &str, text: &str) -> Findings {
    findings(|files| {
        files.entry(path.to_owned()).or_default().push_str(text);
    })
}

#[track_caller]
fn expect(findings: &Findings, part: &str) {
    assert!(findings.iter().any(|finding| finding.contains(part)), "no {part:?} in {findings:#?}");
}

#[test]
fn a_tidy_repository_has_no_findings() {
    assert_eq!(findings(|_| ()), Findings::new());
}

#[test]
fn members_are_listed() {
    expect(&add("crates/new/Cargo.toml", "[lints]\nworkspace = true"), "needs an ADR");
    expect(
        &findings(|files| drop(files.remove("crates/types/Cargo.toml"))),
        "member crates/types does not exist",
    );
}

#[test]
fn edges_point_down() {
    let upwards = "\n[dependencies]\nquorate-protocols.workspace = true";
    expect(&add("crates/types/Cargo.toml", upwards), "types must not import protocols (dependencies)");
    let in_tests = "\n[dev-dependencies]\nquorate-sim.workspace = true";
    expect(&add("crates/protocols/Cargo.toml", in_tests), "must not import sim (dev-dependencies)");
    let allowed = findings(|files| {
        files.get_mut("crates/protocols/Cargo.toml").unwrap().push_str(in_tests);
        files.get_mut("tidy.toml").unwrap().push_str("\n[test_edges]\nprotocols = ['sim']");
    });
    assert_eq!(allowed, Findings::new());
}

#[test]
fn banned_crates_are_found() {
    let banned = findings(|files| {
        let manifest = files.get_mut("crates/types/Cargo.toml").unwrap();
        manifest.push_str("\n[dev-dependencies]\nonce_cell = '1'");
        files.get_mut("tidy.toml").unwrap().push_str("\n[banned]\nonce_cell = 'std does it'");
    });
    expect(&banned, "no direct dependency on once_cell: std does it");
}

#[test]
fn every_member_has_the_lints() {
    let without = findings(|files| {
        files.insert("crates/types/Cargo.toml".to_owned(), "[package]".to_owned());
    });
    expect(&without, "[lints] workspace = true is missing");
}

#[test]
fn pure_crates_have_walls() {
    let without = findings(|files| drop(files.remove("crates/protocols/clippy.toml")));
    expect(&without, "crates/protocols: a pure crate needs a clippy.toml");
    expect(&add("crates/protocols/clippy.toml", " more"), "differs from that of the other pure crates");
    for path in workspace::forbidden() {
        let hole = findings(|files| {
            for name in ["types", "protocols"] {
                let file = files.get_mut(&format!("crates/{name}/clippy.toml")).unwrap();
                *file = file.replace(&format!("{path:?}"), "");
            }
        });
        assert_eq!(hole, [format!("the clippy.toml of the pure crates does not forbid {path}")]);
    }
}

#[test]
fn pure_crates_name_no_files_sockets_threads_or_runtimes() {
    let file = "crates/types/src/x.rs";
    for (text, name) in [
        ("use std::fs;", "std::fs"),
        ("fn x() { std::fs::read(p) }", "std::fs"),
        ("use std::{io, fs::File};", "std::fs"),
        ("use std::{io::{Read, Write}, thread};", "std::thread"),
        ("use std::net::TcpStream;", "std::net"),
        ("use std::net::{SocketAddr, TcpStream};", "std::net"),
        ("use std::{net::UdpSocket};", "std::net"),
        ("use std::net;", "std::net"),
        ("use std::net::*;", "std::net"),
        ("std::thread::park()", "std::thread"),
        ("std::process::abort()", "std::process"),
        ("use std :: env :: var;", "std::env"),
        ("getrandom::fill(b)", "getrandom"),
        ("use std::hash::RandomState;", "RandomState"),
        ("#[tokio::main] async fn x() {}", "tokio"),
    ] {
        expect(&add(file, text), &format!("x.rs:1: a pure crate names {name};"));
        assert_eq!(add("examples/x.rs", text), Findings::new());
    }
    for harmless in [
        "use std::net::{IpAddr, SocketAddr};",
        "use std::{fmt, net::SocketAddr, io::{Read}};",
        "// std::fs\nfn x() { y(\"std::thread tokio\") }",
        "fn fs() { self.thread.env(net) }",
    ] {
        assert_eq!(add(file, harmless), Findings::new());
    }
}

#[test]
fn exceptions_for_drivers_name_a_file_and_are_needed() {
    let with = |drivers: &str, file: &str| {
        findings(|files| {
            files.insert(file.to_owned(), "use std::thread;".to_owned());
            files.get_mut("tidy.toml").unwrap().push_str(&format!("\n[drivers]\n{drivers}"));
        })
    };
    let one = "'crates/types/src/drive.rs' = 'it drives'";
    assert_eq!(with(one, "crates/types/src/drive.rs"), Findings::new());
    expect(&with(one, "crates/types/src/other.rs"), "other.rs:1: a pure crate names std::thread");
    expect(
        &with(one, "crates/types/src/other.rs"),
        "exception for crates/types/src/drive.rs is no longer needed",
    );
    assert_eq!(with("'crates/types/tests/' = 'tests'", "crates/types/tests/a.rs"), Findings::new());
    expect(&with("'crates/types/tests/' = ' '", "crates/types/tests/a.rs"), "has no reason");
}

#[test]
fn unsafe_ignored_tests_and_sleeps_are_found() {
    let file = "crates/types/src/x.rs";
    expect(&add(file, "fn x() { unsafe { y() } }"), "x.rs:1: only crates listed under [unsafe]");
    expect(&add(file, "\n#[ignore = \"slow\"]\nfn x() {}"), "x.rs:2: no test may be ignored");
    expect(&add(file, "fn x() { std::thread::sleep(d) }"), "nothing in a pure crate sleeps");
    expect(&add(file, "use std::thread::sleep; fn x() { sleep(d) }"), "nothing in a pure crate sleeps");
    assert_eq!(add(file, "fn sleep(&self) { self.sleep(d) }"), Findings::new());
    let harmless = "// unsafe sleep()\nfn x() { y(\"unsafe sleep( #[ignore]\"); let sleep = 'u'; }";
    assert_eq!(add(file, harmless), Findings::new());
    assert_eq!(add("examples/x.rs", "fn x() { std::thread::sleep(d) }"), Findings::new());
}

#[test]
fn exceptions_have_reasons() {
    let file = "crates/types/src/x.rs";
    for attribute in [
        "#[allow(clippy::x)]",
        "#![allow(clippy::x)]",
        "#[expect(dead_code)]",
        "#[cfg_attr(test, allow(clippy::x))]",
        "#[allow(\n    clippy::x\n)]",
    ] {
        expect(&add(file, attribute), "without a reason");
    }
    for attribute in [
        "#[allow(clippy::x, reason = \"because\")]",
        "#![cfg_attr(test, allow(clippy::x, reason = \"test data\"))]",
        "fn x() { a.expect(\"text\"); }",
    ] {
        assert_eq!(add(file, attribute), Findings::new());
    }
    let mute = "\n[unsafe]\ntypes = ' '";
    expect(&add("tidy.toml", mute), "unsafe in types has no reason");
}

#[test]
fn long_functions_and_files_are_found() {
    let file = "crates/types/src/x.rs";
    let function = |lines: usize| format!("fn long(\n) {{{}}}\n", "\n".repeat(lines - 2));
    assert_eq!(add(file, &function(70)), Findings::new());
    expect(&add(file, &function(71)), "x.rs:1: function long has 71 lines; at most 70");
    assert_eq!(add(file, &"//\n".repeat(700)), Findings::new());
    expect(&add(file, &"//\n".repeat(701)), "x.rs: 701 lines; at most 700");
    expect(&add("crates/types/src/x.js", &"//\n".repeat(701)), "x.js: 701 lines; at most 700");
    let excepted = |actual: usize, allowed: usize| {
        findings(|files| {
            files.insert(file.to_owned(), function(actual));
            let entry = format!(
                "\n[[long_functions]]\nfile = '{file}'\nfunction = 'long'\nlines = {allowed}\nreason = 'one table'"
            );
            files.get_mut("tidy.toml").unwrap().push_str(&entry);
        })
    };
    assert_eq!(excepted(80, 80), Findings::new());
    expect(&excepted(81, 80), "81 lines; at most 80");
    expect(&excepted(70, 80), "no longer needed");
}

#[test]
fn structs_have_a_limited_number_of_fields() {
    let file = "crates/types/src/x.rs";
    let large = |fields: usize| {
        let fields: String = (0..fields).map(|i| format!("    f{i}: u8,\n")).collect();
        format!("struct Large {{\n{fields}}}")
    };
    assert_eq!(add(file, &large(20)), Findings::new());
    expect(&add(file, &large(21)), "x.rs:1: struct Large has 21 fields; at most 20");
    assert_eq!(add("crates/types/src/x/tests.rs", &large(21)), Findings::new());
    assert_eq!(add(file, &format!("#[cfg(test)]\nmod tests {{\n{}\n}}", large(21))), Findings::new());
    let excepted = |actual: usize, allowed: usize, reason: &str| {
        findings(|files| {
            files.insert(file.to_owned(), large(actual));
            let entry = format!(
                "\n[[large_structs]]\nfile = '{file}'\nstruct = 'Large'\nfields = {allowed}\nreason = '{reason}'"
            );
            files.get_mut("tidy.toml").unwrap().push_str(&entry);
        })
    };
    assert_eq!(excepted(30, 30, "one table"), Findings::new());
    expect(&excepted(31, 30, "one table"), "struct Large has 31 fields; at most 30");
    expect(&excepted(29, 30, "one table"), "allows 30 fields, it has 29: lower the number");
    expect(&excepted(20, 30, "one table"), "struct Large is no longer needed: take it out");
    expect(&excepted(30, 30, " "), "struct Large has no reason");
}

#[test]
fn headless_sentences_may_only_shrink() {
    let file = "crates/types/src/x.rs";
    let code =
        "/// What waits.\nstruct X;\n// What is no documentation.\nfn x() { y(\"\n/// What is text.\n\"); }";
    expect(
        &add(file, code),
        "types: 1 docs begin without a noun; at most 0 (STYLE.md, Sentences):\ncrates/types/src/x.rs:1: What waits.",
    );
    let tests = "#[test]\nfn what_waits_is_sent() {}\n/// What a test makes.\nfn x() {}";
    let found = add("crates/types/tests/x.rs", tests);
    expect(&found, "types: 1 tests begin without a noun");
    expect(&found, "crates/types/tests/x.rs:1: what_waits_is_sent");
    assert_eq!(found.len(), 1);
    let page =
        "# Page\n\n## What is no sentence\n\n| What stands in a table |\n\nA page.\nWhat follows is text.";
    expect(&add("docs/page.md", page), "documents: 1 docs");
    expect(&add("docs/page.md", page), "docs/page.md:8: What follows is text.");
    assert_eq!(add("crates/types/README.md", page), Findings::new());
    let allowed = |docs: usize| {
        findings(|files| {
            files.insert(file.to_owned(), code.to_owned());
            let entry = format!("\n[headless]\ntypes = {{ docs = {docs} }}");
            files.get_mut("tidy.toml").unwrap().push_str(&entry);
        })
    };
    assert_eq!(allowed(1), Findings::new());
    expect(&allowed(3), "[headless] types allows 3 docs, 1 are left: lower the number to 1");
}

#[test]
fn protocols_are_registered_documented_and_independent() {
    let folder = "crates/protocols/src/";
    expect(&add(&format!("{folder}new/mod.rs"), PBFT), "new: not in REGISTRY");
    let gone = findings(|files| drop(files.remove(&format!("{folder}echo/mod.rs"))));
    expect(&gone, "REGISTRY names echo, which has no folder");
    for line in ["use crate::echo;", "use crate::{echo::Echo};", "use super::super::echo::X;"] {
        let found = add(&format!("{folder}pbft/normal.rs"), line);
        expect(&found, "pbft imports echo");
    }
    let own = add(&format!("{folder}pbft/normal.rs"), "use crate::pbft::Pbft; fn f() { let echo = 1; }");
    assert_eq!(own, Findings::new());
    let undocumented = findings(|files| {
        let text = files.get_mut(&format!("{folder}pbft/mod.rs")).unwrap();
        *text = text.replace("//! ## Not here\n", "").replace("# PBFT", "PBFT");
    });
    expect(&undocumented, "`## Not here` is missing");
    expect(&undocumented, "must begin with the protocol's name");
}

#[test]
fn protocols_of_a_family_are_documented_each() {
    let folder = "crates/protocols/src/pbft/";
    let family = |file: &str, text: &str| {
        findings(|files| {
            files.get_mut(&format!("{folder}mod.rs")).unwrap().push_str("pub mod fast;\nmod slow;\n");
            files.insert(format!("{folder}{file}"), text.to_owned());
        })
    };
    assert_eq!(family("fast.rs", PBFT), Findings::new());
    for file in ["fast.rs", "fast/mod.rs"] {
        expect(&family(file, "//! Fast.\n"), "`## Flow` is missing");
    }
    assert_eq!(family("slow.rs", "//! Slow.\n"), Findings::new());
}

#[test]
fn rule_tables_name_tests_that_exist() {
    let table = "## Rules\n//! | id | test |\n//! |---|---|\n//! | P1 | `p1_*`, `p2_whole` |";
    let with = |tests: &str| {
        findings(|files| {
            let text = files.get_mut("crates/protocols/src/pbft/mod.rs").unwrap();
            *text = text.replace("## Rules", table);
            files.insert("crates/protocols/src/pbft/tests.rs".to_owned(), tests.to_owned());
        })
    };
    assert_eq!(with("fn p1_first() {} fn p2_whole<R>() {}"), Findings::new());
    assert_eq!(with("each! { s1_first / p1_first: first; } fn p2_whole() {}"), Findings::new());
    expect(&with("fn p2_whole() {}"), "names the test p1_*, which does not exist");
    expect(&with("fn p1_first() {} fn p2_whole_of_it() {}"), "names the test p2_whole, which does not exist");
}

#[test]
fn documents_have_one_title_and_links_with_targets() {
    expect(&add("README.md", "\n# Second"), "README.md: 2 titles");
    expect(&add("docs/x.md", "## No title"), "docs/x.md: 0 titles");
    expect(&add("README.md", "\n[x](docs/none.md)"), "link to docs/none.md: no such file");
    expect(&add("README.md", "\n[x](docs/wire.md#none)"), "no such heading");
    expect(
        &add("docs/wire.md", "\n[x](wire.md/../README.md) [y](none.md)"),
        "docs/wire.md:7: link to none.md",
    );
    let sound = "\n[a](../README.md) [b](https://example.org/) `[c](none.md)`\n```\n[d](none.md)\n```";
    assert_eq!(add("docs/wire.md", sound), Findings::new());
}

#[test]
fn wire_page_carries_the_hash_of_the_wire_format() {
    expect(&add("crates/types/src/wire.rs", " Changed."), "has changed. Read the page again");
}

#[test]
fn literals_and_comments_hide_their_text() {
    for (source, expected) in [
        (r#"a("x \" }") b"#, r#"a ( "" ) b"#),
        ("a // {\nb", "a b"),
        ("a /* /* */ } */ b", "a b"),
        (r###"r#"}"# x"###, r#""" x"#),
        ("'{' '\\'' 'a: &'a", r#""" "" ' a : & ' a"#),
        (r##"br"}" b'}' b"}" r#type"##, r#""" "" "" r#type"#),
        ("/// x {\nb", "# [ doc = /// x { ] b"),
    ] {
        let found: Vec<String> = tokens(source).unwrap().into_iter().map(|(token, _)| token).collect();
        assert_eq!(found.join(" "), expected, "{source}");
    }
    expect(&add("crates/types/src/x.rs", "fn x() {\n\"} "), "x.rs:2:0: no Rust source");
}

#[test]
fn lengths_of_functions_are_counted() {
    let source = "trait T { fn none(&self); }\nfn a<const N: usize>(x: [u8; 2]) -> fn(u8) where X: Y {\n\n    fn b() {}\n}";
    let function = |name: &str, line, size| Item { name: name.to_owned(), line, size };
    let found = functions(&tokens(source).unwrap());
    assert_eq!(found, [function("a", 2, 4), function("b", 4, 1)]);
}

#[test]
fn fields_tests_and_regions_are_found() {
    let source = "struct A<T: B> where T: C { a: x::Y, #[z(b: c)] pub d: [u8; 2], e: Box<dyn Fn(f) -> g::H> }\nstruct T(u8);\nstruct U;";
    let found = structs(&tokens(source).unwrap());
    assert_eq!(found, [Item { name: "A".to_owned(), line: 1, size: 3 }]);
    let source = "#[test]\n#[should_panic]\nfn a() {}\nm! { #[test] fn $b() {} }\n#[cfg(test)]\nmod c {\n}\n#[cfg(test)]\nmod d;";
    let tokens = tokens(source).unwrap();
    assert_eq!(source::tests(&tokens), [(1, "a")]);
    assert_eq!(source::test_regions(&tokens), [5..=7]);
}
