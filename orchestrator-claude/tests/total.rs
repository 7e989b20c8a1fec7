//! P16: nothing that an agent writes makes a public function panic, or be taken for what it is not.

use orchestrator_claude::agent::Prices;
use orchestrator_claude::claude::stream::Transcript;
use orchestrator_claude::claude::{Ending, classify};
use orchestrator_claude::outcome::{Class, Exit};
use orchestrator_claude::prompt::{Templates, Values};
use orchestrator_claude::verdict;
use orchestrator_core::{Outcome, TaskId, TaskSpec, Verdict};
use proptest::prelude::*;

/// Pieces that output and verdicts are made of, so that chance finds the way into them.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("{"),
        Just("}"),
        Just("["),
        Just("]"),
        Just(","),
        Just(":"),
        Just("\n"),
        Just("\\\""),
        Just("\"verdict\""),
        Just("\"APPROVE\""),
        Just("\"REJECT\""),
        Just("\"findings\""),
        Just("\"severity\""),
        Just("\"blocking\""),
        Just("\"message\""),
        Just("\"line\""),
        Just("\"type\""),
        Just("\"result\""),
        Just("\"assistant\""),
        Just("\"system\""),
        Just("\"is_error\""),
        Just("false"),
        Just("\"total_cost_usd\""),
        Just("1e308"),
        Just("-1"),
        Just("\"usage\""),
        Just("\"message\":{\"usage\":{\"input_tokens\":18446744073709551615}}"),
        Just("{\"verdict\":\"APPROVE\",\"findings\":[]}"),
        Just("é"),
        Just("{{"),
        Just("}}"),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn p16_any_output_is_read_and_classified(text in pieces(), code in any::<i32>()) {
        let transcript = Transcript::of(text.as_bytes());
        _ = transcript.cost(&Prices::default());
        let ending = Ending {
            exit: Exit::Code(code),
            stopped: None,
            was_ended_late: false,
            transcript: &transcript,
            stderr: "",
            wants_structure: false,
            question: None,
            has_changes: None,
        };
        let class = classify(&ending);
        // What has no final line is never a success.
        let is_passed = class.outcome(&ending.told()) == Outcome::Passed;
        prop_assert!(transcript.last().is_some() || !is_passed);
        prop_assert!(class != Class::Success || transcript.last().is_some_and(|it| !it.is_error));
    }

    #[test]
    fn p16_any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        _ = Transcript::of(&bytes).last();
    }

    #[test]
    fn p16_an_approval_is_only_read_where_one_stands_and_nothing_else(text in pieces()) {
        if let Ok(judgement) = verdict::parse(None, &text) {
            let is_approved = judgement.verdict == Verdict::Approve;
            prop_assert_eq!(text.matches("\"verdict\"").count(), 1);
            prop_assert!(!is_approved || text.contains("\"APPROVE\""));
        }
    }

    #[test]
    fn p16_no_error_text_changes_what_a_template_says(error in pieces()) {
        let mut templates = Templates::built_in();
        templates.add("own", "<{{last_error}}>").expect("it is valid");
        let task = TaskSpec::new(TaskId::parse("t").expect("it is valid"));
        let feedback = [error.clone()];
        let values =
            Values { task: &task, attempt: 2, feedback: &feedback, noticed: &feedback, documents: &[], change: None };
        let prompt = templates.render("own", values).expect("every value is there");
        prop_assert_eq!(prompt, format!("<{}>", error.trim_end()));
    }
}
