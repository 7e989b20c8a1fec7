use std::slice::from_ref;

use orchestrator_core::{Scope, VerifyCommand};
use serde_json::json;

use super::super::FEEDBACK_BYTES_MAX;
use super::*;

fn task() -> TaskSpec {
    let mut task = TaskSpec::new(TaskId::parse("port-a").unwrap());
    let inputs = json!({"source": "a.py", "target": "a.rs", "files": ["x", "y"]});
    task.inputs = inputs.as_object().unwrap().clone();
    task.verify = Some(VerifyCommand::Shell("cargo test && echo \"<ok>\"".to_owned()));
    task.scope = Some(Scope::parse(["src/a.rs"]).unwrap());
    task
}

fn values<'a>(task: &'a TaskSpec, feedback: &'a [String]) -> Values<'a> {
    Values { task, attempt: 1, feedback, noticed: &[], documents: &[], change: None }
}

fn with(text: &str) -> Templates {
    let mut templates = Templates::built_in();
    templates.add("own", text).unwrap();
    templates
}

fn render(text: &str, feedback: &[&str]) -> Result<String, TemplateError> {
    let feedback: Vec<String> = feedback.iter().map(|&text| text.to_owned()).collect();
    with(text).render("own", values(&task(), &feedback))
}

#[test]
fn every_built_in_template_renders_for_every_attempt() {
    let documents =
        [Document { name: "INTERFACES.md".to_owned(), text: "fn {{a}}(&self) -> &str".to_owned() }];
    let templates = Templates::built_in();
    let tasks: Vec<TaskSpec> = ["implement", "port", "fix", "address-feedback"]
        .map(|name| TaskSpec { prompt_template: name.to_owned(), ..task() })
        .to_vec();
    let faults = templates.check(&tasks, &documents);
    assert!(faults.is_empty(), "{faults:?}");

    let feedback = ["first".to_owned(), "second".to_owned()];
    let values = Values {
        task: &tasks[1],
        attempt: 3,
        feedback: &feedback,
        noticed: &["it changed tests".to_owned()],
        documents: &documents,
        change: None,
    };
    insta::assert_snapshot!("port", templates.render("port", values).unwrap());
    let bare = TaskSpec { inputs: serde_json::Map::new(), verify: None, scope: None, ..task() };
    let values = Values { task: &bare, feedback: &[], noticed: &[], documents: &[], ..values };
    insta::assert_snapshot!("implement_bare", templates.render("implement", values).unwrap());
}

#[test]
fn the_reviewers_prompt_shows_the_change_as_data() {
    let change = ChangeText {
        files: &["a.rs".to_owned()],
        diff: "+let x = \"{{secret}}\";",
        cut: Some("2 binary files"),
        mark: "m1",
        ..ChangeText::default()
    };
    let task = task();
    let values = Values { change: Some(change), ..values(&task, &[]) };
    insta::assert_snapshot!("review", Templates::built_in().render("review", values).unwrap());
}

#[test]
fn without_an_earlier_error_the_block_for_it_is_left_out() {
    let text = "a{{#if last_error}} {{last_error}}{{/if}}{{#unless last_error}}!{{/unless}}";
    assert_eq!(render(text, &[]).unwrap(), "a!");
    assert_eq!(render(text, &["e1", "e2"]).unwrap(), "a e2");
}

#[test]
fn p16_braces_in_values_are_data_and_nothing_is_escaped() {
    let error = "{{inputs.source}} {{> rules}} {{{x}}} <a> & \"b\" \\{{c}}";
    assert_eq!(render("{{last_error}}", &[error]).unwrap(), error);
    assert_eq!(render("{{source}} {{verify}}", &[]).unwrap(), "a.py cargo test && echo \"<ok>\"");
    assert_eq!(render("{{#each inputs}}{{@key}}={{json this}};{{/each}}", &[]).unwrap(), {
        "files=[\"x\",\"y\"];source=a.py;target=a.rs;"
    });
}

/// Text that a template would act on, if it were one.
const LIVE: &str = "{{inputs.source}}{{> rules}}{{{x}}}{{#if y}}\\{{z}}<&\"'";

#[test]
fn p16_every_kind_of_value_reaches_the_prompt_as_it_is() {
    let live = |place: &str| format!("{place}:{LIVE}");
    let lists = ["noticed", "files", "known", "altered", "earlier"].map(|place| [live(place)]);
    let [noticed, files, known, altered, earlier] = &lists;
    let feedback = [live("learning"), live("error")];
    let documents = [Document { name: live("name"), text: live("document") }];
    let mut task = task();
    task.inputs.insert("own".to_owned(), live("input").into());
    task.inputs.insert("deep".to_owned(), json!([{ "k": "{{inputs.source}}" }]));
    task.verify = Some(VerifyCommand::Shell(live("verify")));
    let (diff, cut, answer, repeat) = (live("diff"), live("cut"), live("answer"), live("repeat"));
    let change = ChangeText {
        files,
        diff: &diff,
        cut: Some(&cut),
        known,
        documents: altered,
        earlier,
        answer: Some(&answer),
        mark: "m1",
        repeat: Some(&repeat),
    };
    let values = Values {
        task: &task,
        attempt: 3,
        feedback: &feedback,
        noticed,
        documents: &documents,
        change: Some(change),
    };
    let templates = Templates::built_in();
    let all = |names: &[&str], places: &[&str]| {
        for name in names {
            let prompt = templates.render(name, values).unwrap();
            for place in places {
                assert!(prompt.contains(&live(place)), "{place} in {name}: {prompt}");
            }
            assert!(!prompt.contains("a.py{{> rules"), "{name}");
        }
    };
    let of_work = ["input", "verify", "name", "document", "error", "learning", "noticed"];
    all(&["implement", "port", "fix", "address-feedback"], &of_work);
    all(&["resume"], &["verify", "error", "learning", "noticed"]);
    let of_review = ["input", "name", "document", "files", "known", "altered", "earlier", "diff"];
    all(&["review"], &of_review);
    all(&["review"], &["cut", "answer", "repeat"]);
    let deep = r#"[{"k":"{{inputs.source}}"}]"#;
    assert!(templates.render("fix", values).unwrap().contains(deep));
}

#[test]
fn a_long_error_keeps_its_head_and_tail_within_the_limit() {
    let error = format!("begins {} ends", "x".repeat(100_000));
    let prompt = render("{{last_error}}", &[&error]).unwrap();
    assert!(prompt.len() <= FEEDBACK_BYTES_MAX, "{}", prompt.len());
    assert!(prompt.starts_with("begins") && prompt.ends_with("ends"));
}

#[test]
fn what_is_missing_is_named_with_template_and_line() {
    let missing = |text: &str, feedback: &[&str]| {
        let err = render(text, feedback).unwrap_err();
        let TemplateError::MissingVariable { template, line, variable, .. } = err else {
            panic!("{text}: {err}")
        };
        (template, line, variable)
    };
    let at = |line, variable: &str| ("own".to_owned(), Some(line), variable.to_owned());
    assert_eq!(missing("a\nb {{inputs.sorce}}", &[]), at(2, "inputs.sorce"));
    assert_eq!(missing("{{lasterror}}", &[]), at(1, "lasterror"));
    assert_eq!(missing("\n\n{{#if lasterror}}x{{/if}}", &[]), at(3, "lasterror"));
    assert_eq!(missing("{{#each inputs.gone}}x{{/each}}", &[]), at(1, "inputs.gone"));
    assert_eq!(missing("{{json inputs.gone}}", &[]), at(1, "inputs.gone"));
    assert_eq!(render("{{#if inputs.optional}}x{{/if}}.", &[]).unwrap(), ".");

    let err = render("a\n{{> gone}}", &[]).unwrap_err();
    let TemplateError::MissingPartial { template, line, partial, .. } = err else {
        panic!("{err}")
    };
    assert_eq!((template.as_str(), line, partial.as_str()), ("own", Some(2), "gone"));
}

#[test]
fn check_finds_what_only_a_later_attempt_would_miss() {
    let templates = with("{{#if last_error}}\n{{#if learnings}}{{typo}}{{/if}}{{/if}}");
    let one = TaskSpec { prompt_template: "own".to_owned(), ..task() };
    let two = TaskSpec { id: TaskId::parse("b").unwrap(), ..one.clone() };
    let three = TaskSpec { prompt_template: "prot".to_owned(), ..one.clone() };
    let faults = templates.check(&[one, two, three], &[]);
    let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(faults.len(), 2, "{texts:#?}");
    assert_eq!(faults[0].tasks.len(), 2);
    assert!(texts[0].contains("`own`, line 2") && texts[0].contains("`typo`"), "{texts:#?}");
    assert!(texts[1].contains("`prot`") && texts[1].contains("is `port` meant?"), "{texts:#?}");
    assert!(texts[1].contains("implement, own, port"), "{texts:#?}");
}

#[test]
fn check_finds_what_is_included_in_a_branch_that_no_rendering_comes_to() {
    let own = TaskSpec { prompt_template: "own".to_owned(), ..task() };
    let faults = |text: &str| with(text).check(from_ref(&own), &[]);
    for text in [
        "\n{{#if (gt attempt 3)}}{{> gone}}{{/if}}",
        "\n{{#if inputs.none}}{{> gone}}{{/if}}",
        "\n{{#if inputs.source}}{{else}}{{> gone}}{{/if}}",
        "\n{{#if inputs.none}}{{else if inputs.no}}{{else if inputs.nor}}{{> gone}}{{/if}}",
        "\n{{#each inputs.files}}{{#if (eq @index 7)}}{{> gone}}{{/if}}{{/each}}",
        // Rendered too: said once.
        "\n{{> gone}}",
        "\n{{#if inputs.source}}{{> gone}}{{/if}}",
    ] {
        let faults = faults(text);
        assert_eq!(faults.len(), 1, "{text}: {faults:?}");
        let TemplateError::MissingPartial { template, line, partial, .. } = &faults[0].error else {
            panic!("{text}: {faults:?}")
        };
        assert_eq!((template.as_str(), *line, partial.as_str()), ("own", Some(2), "gone"));
    }
    let mut through = with("{{#if inputs.none}}{{> other}}{{/if}}");
    through.add("other", "{{#if inputs.none}}{{> gone}}{{/if}}").unwrap();
    let texts: Vec<String> =
        through.check(from_ref(&own), &[]).iter().map(ToString::to_string).collect();
    assert!(texts.len() == 1 && texts[0].contains("`other`"), "{texts:?}");
    for text in [
        "{{#*inline \"mine\"}}x{{/inline}}{{#if inputs.none}}{{> mine}}{{/if}}",
        "{{#> gone}}instead{{/gone}}",
        "{{#if inputs.none}}{{> rules}}{{> (lookup inputs \"source\")}}{{/if}}",
    ] {
        let faults = faults(text);
        assert!(faults.is_empty(), "{text}: {faults:?}");
    }
}

#[test]
fn check_renders_every_attempt_that_a_task_may_have() {
    for (text, retries, expected) in [
        ("{{#if (gt attempt 3)}}{{inputs.gone}}{{/if}}", 3, 1),
        ("{{#if (gt attempt 3)}}{{inputs.gone}}{{/if}}", 2, 0),
        ("{{#each learnings}}{{#if (eq @index 1)}}{{inputs.gone}}{{/if}}{{/each}}", 3, 1),
        ("{{#if (eq attempt attempts_max)}}{{inputs.gone}}{{/if}}", 500, 1),
        ("{{#if (eq attempt 3)}}{{inputs.gone}}{{/if}}", 0, 1),
        ("{{attempt}}", u32::MAX, 0),
    ] {
        let own = TaskSpec { prompt_template: "own".to_owned(), max_retries: retries, ..task() };
        let faults = with(text).check(from_ref(&own), &[]);
        assert_eq!(faults.len(), expected, "{text} {retries}: {faults:?}");
    }
}

#[test]
fn check_renders_what_no_template_of_a_task_includes() {
    let mut templates = Templates::built_in();
    templates.add("own", "bare").unwrap();
    let task = TaskSpec { prompt_template: "own".to_owned(), ..task() };
    assert!(templates.check(from_ref(&task), &[]).is_empty());
    for name in ["rules", "resume"] {
        let mut broken = Templates::built_in();
        broken.add("own", "bare").unwrap();
        for (text, said) in [("{{> gone}}", "`gone`"), ("a\n{{inputs.gone}}", "`inputs.gone`")] {
            broken.add(name, text).unwrap();
            let faults = broken.check(from_ref(&task), &[]);
            let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
            assert_eq!(faults.len(), 1, "{texts:#?}");
            assert!(texts[0].contains(name) && texts[0].contains(said), "{texts:#?}");
        }
    }
    // What was rejected before may have been noticed to do something, or not.
    let mut quiet = with("bare");
    quiet.add("resume", "{{#if last_error}}{{#unless noticed}}{{typo}}{{/unless}}{{/if}}").unwrap();
    assert_eq!(quiet.check(from_ref(&task), &[]).len(), 1);
}

#[test]
fn check_finds_what_any_review_of_any_task_would_miss() {
    let other = TaskSpec { id: TaskId::parse("b").unwrap(), ..task() };
    let bare = TaskSpec { inputs: serde_json::Map::new(), ..task() };
    let tasks = [task(), other, bare];
    let built_in = Templates::built_in();
    assert!(built_in.check_review("review", &tasks, &[]).is_empty());
    assert!(with("{{change.diff}}").check_review("own", &tasks, &[]).is_empty());
    for part in [
        "change.cut",
        "change.known",
        "change.documents",
        "change.earlier",
        "change.answer",
        "repeat",
    ] {
        for block in ["if", "unless"] {
            let text = format!("{{{{#{block} {part}}}}}{{{{typo}}}}{{{{/{block}}}}}");
            let faults = with(&text).check_review("own", &tasks, &[]);
            assert_eq!(faults.len(), 1, "{text}");
            assert_eq!(faults[0].tasks.len(), 3, "{text}");
        }
    }
    let alone = "{{#if change.cut}}{{#unless change.earlier}}{{typo}}{{/unless}}{{/if}}";
    assert_eq!(with(alone).check_review("own", &tasks, &[]).len(), 1);
    // All that is wrong is said at once, of each task that it is wrong for.
    let several = with("{{inputs.source}}{{#if repeat}}{{> gone}}{{/if}}");
    let faults = several.check_review("own", &tasks, &[]);
    let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(faults.len(), 2, "{texts:#?}");
    let of = |text: &str| faults.iter().find(|fault| fault.to_string().contains(text)).unwrap();
    assert_eq!((of("`gone`").tasks.len(), of("inputs.source").tasks.len()), (3, 1), "{texts:#?}");
}

#[test]
fn templates_of_a_directory_take_the_place_of_the_built_in_ones() {
    let dir = tempfile::tempdir().unwrap();
    let written = Templates::write_out(dir.path()).unwrap();
    assert_eq!(written.len(), BUILT_IN.len());
    std::fs::write(dir.path().join("port.hbs"), "mine: {{source}}").unwrap();
    std::fs::write(dir.path().join("more.md"), "{{> port}}!").unwrap();
    std::fs::write(dir.path().join("notes.txt"), "{{").unwrap();
    let templates = Templates::with_directory(dir.path()).unwrap();
    assert_eq!(templates.render("more", values(&task(), &[])).unwrap(), "mine: a.py!");
    // What is there is never written over.
    assert!(Templates::write_out(dir.path()).unwrap().is_empty());

    std::fs::write(dir.path().join("port.md"), "twice").unwrap();
    std::fs::write(dir.path().join("broken.hbs"), "a\n{{#if x}}").unwrap();
    let errors = Templates::with_directory(dir.path()).unwrap_err();
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(matches!(&errors[0], TemplateError::Syntax { template, .. } if template == "broken"));
    assert!(matches!(&errors[1], TemplateError::Twice { name, .. } if name == "port"));
    assert!(Templates::with_directory(&dir.path().join("gone")).is_err());
}

#[test]
fn a_prompt_that_no_model_reads_is_refused() {
    let mut task = task();
    task.inputs.insert("big".to_owned(), "x".repeat(PROMPT_BYTES_MAX + 1).into());
    let err = with("{{big}}").render("own", values(&task, &[])).unwrap_err();
    assert!(matches!(err, TemplateError::TooLong { .. }), "{err}");
}

#[test]
fn the_errors_of_all_earlier_attempts_are_told_within_a_limit() {
    let feedback: Vec<String> = (1..=40)
        .map(|n| format!("error {n} begins {} error {n} ends", "x".repeat(9_000)))
        .collect();
    let task = task();
    let prompt = Templates::built_in().render("fix", values(&task, &feedback)).unwrap();
    for n in 1..=40 {
        let (begins, ends) = (format!("error {n} begins"), format!("error {n} ends"));
        assert!(prompt.contains(&begins) && prompt.contains(&ends), "{n}");
    }
    assert!(prompt.len() < 48 * 1024 + 24 * 1024 + 16 * 1024, "{}", prompt.len());
}

#[test]
fn p16_templates_that_include_each_other_are_a_fault_and_not_a_crash() {
    let mut templates = with("{{> one}}");
    templates.add("one", "{{#if attempt}}{{> two}}{{/if}}").unwrap();
    templates.add("two", "a\n{{> one}}").unwrap();
    let task = task();
    let err = templates.render("own", values(&task, &[])).unwrap_err();
    assert!(err.to_string().contains("`two`, line 2"), "{err}");
    assert!(err.to_string().contains("without an end"), "{err}");
    let own = TaskSpec { prompt_template: "own".to_owned(), ..task };
    let faults = templates.check(&[own], &[]);
    assert!(faults[0].to_string().contains("without an end"), "{faults:?}");
}

#[test]
fn a_value_that_is_missing_is_not_given_to_a_partial_as_nothing() {
    let documents = [];
    let faults = |text: &str| {
        let mut templates = with(text);
        templates.add("part", "[{{x}}]").unwrap();
        templates.add("still", "still").unwrap();
        let mut task = task();
        task.prompt_template = "own".to_owned();
        let faults = templates.check(&[task], &documents);
        faults.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for missing in [
        "{{> part x=inputs.no_such}}",
        "{{#if attempt}}{{> part x=no_such}}{{/if}}",
        "{{#each inputs}}{{> part x=../no_such}}{{/each}}",
        "{{#> part x=inputs.no_such}}inside{{/part}}",
        "{{> still inputs.no_such}}",
        "{{#*inline \"near\"}}{{> part x=inputs.no_such}}{{/inline}}{{> near}}",
    ] {
        let faults = faults(missing);
        assert_eq!(faults.len(), 1, "{missing}: {faults:?}");
        assert!(faults[0].contains("no_such") && faults[0].contains("line 1"), "{faults:?}");
    }
    for there in ["{{> part x=attempt}}", "{{> part x=\"a\"}}", "{{> part x=(json attempt)}}"] {
        assert_eq!(faults(there), [""; 0], "{there}");
    }
    assert_eq!(faults("{{#each inputs}}{{> part x=@key}}{{/each}}"), [""; 0]);
}

#[test]
fn a_slip_of_the_pen_within_brackets_is_found_as_outside_of_them() {
    for slip in [
        "{{#if (and attempt last_eror)}}x{{/if}}",
        "{{#if (or last_eror attempt)}}x{{/if}}",
        "{{#unless (or attempt (and attempt last_eror))}}x{{/unless}}",
        "{{#if (not last_eror)}}x{{/if}}",
        "{{#if (eq (len last_eror) 0)}}x{{/if}}",
        "{{json (and last_eror attempt)}}",
        "{{#if attempt}}{{#if (and attempt last_eror)}}x{{/if}}{{/if}}",
    ] {
        let templates = with(slip);
        let faults =
            templates.check(&[TaskSpec { prompt_template: "own".to_owned(), ..task() }], &[]);
        assert!(!faults.is_empty(), "{slip}");
        let all: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert!(all.concat().contains("last_eror"), "{slip}: {all:?}");
    }
    for right in [
        "{{#if (and attempt last_error)}}x{{/if}}",
        "{{#if (or inputs.nothing last_error attempt)}}x{{/if}}",
        "{{#each documents}}{{#if (or nothing name)}}x{{/if}}{{/each}}",
    ] {
        assert!(render(right, &[]).is_ok(), "{right}: {:?}", render(right, &[]));
    }
    assert_eq!(render("{{#if (and attempt last_error)}}x{{else}}y{{/if}}", &["e"]).unwrap(), "x");
    assert_eq!(render("{{#if (and attempt last_error)}}x{{else}}y{{/if}}", &[]).unwrap(), "y");
}
