//! A text that is read quickly is read as if it had been read carefully.

use super::*;

/// Reads a text in both ways; gives whether it can be read quickly.
fn is_quick(text: &str) -> bool {
    let known = |_: &TaskId| false;
    let Some(plan) = quickly(text, &known) else { return false };
    let careful = carefully(text, &known);
    assert_eq!(careful.as_ref(), Ok(&plan), "{text}");
    // Numbers that are equal may be written in two ways, and the address of a plan is of its text.
    let written = |plan: &Plan| serde_json::to_string(plan).unwrap();
    assert_eq!(careful.as_ref().map(written), Ok(written(&plan)), "{text}");
    true
}

fn with_input(value: &str) -> String {
    format!(r#"[{{"id": "a", "verify": "true", "inputs": {{"x": {value}}}}}]"#)
}

#[test]
fn numbers_and_texts_of_every_form_are_read_as_the_same() {
    for (value, expected) in [
        ("0", true),
        ("-1", true),
        ("-0", false),
        ("-0.0", false),
        ("1.0", true),
        ("1e2", true),
        ("1E+2", true),
        ("0.1", true),
        ("5e-324", true),
        ("1e-400", true),
        ("1e308", true),
        ("1e309", false),
        ("18446744073709551615", true),
        ("18446744073709551616", true),
        ("-9223372036854775808", true),
        ("-9223372036854775809", true),
        ("123456789012345678901234567890", true),
        ("01", false),
        ("1.", false),
        ("+1", false),
        (r#""\ud83d\ude00 \u00e9 \/ \b\f\n\r\t \\ \"""#, true),
        (r#""\ud83d""#, false),
        (r#""\u0000""#, true),
        ("\"\u{7f} \u{2028} e\u{301}\"", true),
        ("\"\t\"", false),
        (r#"{"a\u0062": [true, false, null, {}, []]}"#, true),
        (r#"{"a": 1, "\u0061": 2}"#, false),
        ("[1,]", false),
        ("1 /* one */", false),
        ("\u{a0}1", false),
        (r#"{"$serde_json::private::Number": "1"}"#, false),
    ] {
        assert_eq!(is_quick(&with_input(value)), expected, "{value}");
    }
}

#[test]
fn numbers_of_fields_are_read_as_the_same() {
    for (fields, expected) in [
        (r#""max_retries": 1000, "priority": -2147483648"#, true),
        (r#""max_retries": 1001"#, false),
        (r#""max_retries": 1.0"#, false),
        (r#""max_retries": 1e1"#, false),
        (r#""priority": -0"#, false),
        (r#""budget": 0.1, "timeout": 1.5, "estimate": 1e1, "needs": {"gpu": 4294967295}"#, true),
        (r#""needs": {"gpu": 4294967296}"#, false),
        (
            r#""model": null, "scope": ["a", "b/*"], "estimate": "1h30m", "pipeline": "default""#,
            true,
        ),
        (r#""role": null"#, false),
        (r#""depends_on": ["a"]"#, false),
        (r#""rol": "x""#, false),
    ] {
        let text = format!(r#"[{{"id": "a", "verify": ["x", ""], {fields}}}]"#);
        assert_eq!(is_quick(&text), expected, "{fields}");
    }
}

#[test]
fn p16_what_is_beyond_a_limit_is_left_to_the_careful_way() {
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(is_quick(&with_input(&deep(63))));
    assert!(!is_quick(&with_input(&deep(64))));
    let task = |values: usize| {
        let text = format!(
            r#"[{{"id": "a", "verify": "x", "inputs": {{"x": [[], {}0]}}}}]"#,
            "0,".repeat(values)
        );
        assert_eq!(text::scan(&text), Ok(values + 8));
        text
    };
    assert!(is_quick(&task(PLAN_VALUES_MAX - 8)));
    let many = task(PLAN_VALUES_MAX - 8).replace("[[]", "[[], []");
    assert!(!is_quick(&many) && told(&many).contains("more than 2000000 values"));
}

#[test]
fn defaults_are_measured_alike_and_are_quick() {
    let tasks: Vec<String> = (0..3_000).map(|at| format!(r#"{{"id": "t{at}"}}"#)).collect();
    let text = |length: usize| {
        let defaults = format!(r#"{{"verify": "{}"}}"#, "x".repeat(length));
        format!(r#"{{"defaults": {defaults}, "tasks": [{}]}}"#, tasks.join(","))
    };
    let longest = PLAN_BYTES_MAX / 3_000 - "verify".len();
    assert!(is_quick(&text(longest)));
    assert!(!is_quick(&text(longest + 1)));
    assert!(told(&text(longest + 1)).contains("the defaults are too much"));
}

#[test]
fn what_holds_for_all_tasks_may_stand_behind_them() {
    let tasks =
        r#""tasks": [{"id": "a"}, {"role": "port", "id": "b"}, {"id": "c", "estimate": null}]"#;
    let others = r#""estimates": {"port": "1h"}, "pools": {"gpu": {"limit": 2, "budget": 1e1}},
        "defaults": {"verify": "x", "estimate": "5m", "needs": {"gpu": 2}}"#;
    for text in [format!("{{{tasks}, {others}}}"), format!("\n{{{others}, {tasks}}}")] {
        assert!(is_quick(&text));
        assert!(!is_quick(&text.replace("\"tasks\"", "\"tasks\": [], \"tasks\"")));
        assert!(!is_quick(&text.replace("tasks", "task")));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn p16_a_text_that_somebody_changed_is_read_alike_in_both_ways(
        plan in plans(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..4, any::<prop::sample::Index>()), 0..3),
    ) {
        const PIECES: [&str; 24] = [
            "1", "0", "-", ".", "e9", "\"", "\\", "\\n", "\\u00e9", "{", "}", "[", "]", ",", ":", "null",
            "true", " ", "\n", "/* c */", "// c\n", "\"id\":", "\"t1\"", "\"x\":1,",
        ];
        let mut text = serde_json::to_string(&written(&plan)).unwrap();
        prop_assert!(is_quick(&text));
        for (index, kind, piece) in changes {
            let begins: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            let at = begins[index.index(begins.len())];
            let end = at + text[at..].chars().next().map_or(0, char::len_utf8);
            let piece = PIECES[piece.index(PIECES.len())];
            match kind {
                0 => text.insert_str(at, piece),
                1 => text.replace_range(at..end, piece),
                2 => text.replace_range(at..end, ""),
                // Something that stands there already, once more.
                _ => text.insert_str(at, &text[at..].chars().take(12).collect::<String>()),
            }
        }
        is_quick(&text);
    }
}
