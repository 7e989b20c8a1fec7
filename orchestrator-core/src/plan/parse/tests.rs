mod ways;

use std::num::NonZeroU32;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::id::BlobHash;
use crate::money::Usd;
use crate::pipeline::{Pipeline, StageKind, StageSpec};
use crate::plan::{Canonical, PLAN_ERRORS_MAX, Position};
use crate::scope::Scope;
use crate::task::{TaskSpec, VerifyCommand};

fn told(text: &str) -> String {
    Plan::parse(text).unwrap_err().to_string()
}

fn id(text: &str) -> TaskId {
    TaskId::parse(text).unwrap()
}

#[test]
fn a_list_of_tasks_with_trailing_commas_is_a_plan() {
    let text = r#"[
        {"id": "port-http-types", "verify": "cargo test -p http types::"},
        {
            "id": "port-http-response",
            "prompt_template": "port",
            "inputs": {
                "source": "src/http/response.zig",
                "target": "crates/http/src/response.rs",
            },
            "depends_on": ["port-http-types"],
            "verify": "cargo test -p http response::",
            "max_retries": 3,
            "role": "implement",
        },
    ]"#;
    let plan = Plan::parse(text).unwrap();
    let task = &plan.tasks[1];
    assert_eq!(task.id, id("port-http-response"));
    assert_eq!(task.depends_on, [id("port-http-types")]);
    assert_eq!(task.inputs["target"], "crates/http/src/response.rs");
    assert_eq!((task.role.as_str(), task.prompt_template.as_str()), ("implement", "port"));
    assert_eq!(task.verify.as_ref().unwrap().to_string(), "cargo test -p http response::");
    assert_eq!((task.max_retries, plan.budget), (3, None));
}

#[test]
fn every_field_of_a_plan_arrives_and_a_task_overrides_the_defaults() {
    let text = r#"{
        // What all tasks share.
        "defaults": {
            "role": "port", "inputs": {"language": "rust", "depth": 1}, "needs": {"gpu": 1},
            "timeout": "1h30m", "estimate": 600, "model": "large", "verify": ["make", "", "x"],
            "scope": "src", "pipeline": "careful", "metadata": {"team": null}, "priority": -2,
        },
        "tasks": [
            {"id": "a"},
            {"id": "b", "depends_on": ["a"], "model": null, "scope": ["a/*.rs", "b"],
             "inputs": {"depth": 2}, "needs": {"cpu": 2}, "timeout": 90, "pipeline": "bare"},
        ],
        "pools": {"gpu": 2, "cpu": 8},
        "pipelines": {
            "bare": ["run"],
            "careful": ["run", "verify", {"kind": "review", "pool": "judges", "model": "small",
                         "timeout": "5m", "cap_usd": 0.25},
                         {"kind": "review", "name": "second"}, "integrate"],
        },
        "budget": 12.5, /* dollars */
    }"#;
    let plan = Plan::parse(text).unwrap();
    assert_eq!(plan.budget, Some(Usd(12_500_000)));
    let [a, b] = plan.tasks.as_slice() else { panic!("two tasks") };
    assert_eq!((a.role.as_str(), a.priority, a.model.as_deref()), ("port", -2, Some("large")));
    assert_eq!(a.verify, Some(VerifyCommand::Argv(["make", "", "x"].map(str::to_owned).to_vec())));
    assert_eq!(
        (a.timeout, a.estimate),
        (Some(Duration::from_secs(5_400)), Some(Duration::from_secs(600)))
    );
    assert_eq!(serde_json::json!(b.inputs), serde_json::json!({"language": "rust", "depth": 2}));
    assert_eq!((b.needs.len(), b.model.clone()), (2, None));
    assert_eq!(b.needs[&PoolName::parse("gpu").unwrap()], NonZeroU32::MIN);
    assert_eq!(b.timeout, Some(Duration::from_secs(90)));
    assert_eq!(b.scope.as_ref().unwrap().patterns().collect::<Vec<_>>(), ["a/*.rs", "b"]);
    let careful = plan.pipeline_of(a).unwrap();
    let review = &careful.stages()[2];
    assert_eq!((review.pool.as_str(), review.cap), ("judges", Usd(250_000)));
    assert_eq!(careful.stages()[3].name.as_str(), "second");
    assert_eq!(plan.pipeline_of(b).unwrap().stages()[0].timeout, Duration::from_secs(90));
}

#[test]
fn an_estimate_is_the_tasks_own_or_that_of_its_role_or_that_of_all() {
    let plan = Plan::parse(
        r#"{
            "defaults": {"estimate": "5m", "verify": "true"},
            "estimates": {"review": "10m", "implement": 60, "unused": "1h"},
            "tasks": [
                {"id": "a"},
                {"id": "b", "role": "review"},
                {"id": "c", "role": "review", "estimate": "2m"},
                {"id": "d", "role": "port"},
                {"id": "e", "estimate": null},
            ],
        }"#,
    );
    let seconds: Vec<Option<u64>> =
        plan.unwrap().tasks.iter().map(|task| Some(task.estimate?.as_secs())).collect();
    assert_eq!(seconds, [Some(60), Some(600), Some(120), Some(300), None]);
    let wrong = Plan::parse(r#"{"estimates": {"port": "soon"}, "tasks": []}"#).unwrap_err();
    assert!(wrong.to_string().contains("`port`"), "{wrong}");
}

#[test]
fn budgets_and_bounds_of_pools_and_tasks_arrive() {
    let text = r#"{
        "pools": {
            "gpu": {"limit": 2, "budget": 1.5, "in_flight_max": 3},
            "opus": {"budget": 20},
            "cpu": {"limit": 4},
        },
        "tasks": [{"id": "a", "verify": "true", "budget": 0.5}, {"id": "b", "verify": "true"}],
    }"#;
    let plan = Plan::parse(text).unwrap();
    let pool = |name| PoolName::parse(name).unwrap();
    assert_eq!(plan.pools, [(pool("cpu"), 4), (pool("gpu"), 2)].into());
    let gpu = PoolBounds { budget: Some(Usd(1_500_000)), in_flight_max: Some(3) };
    let opus = PoolBounds { budget: Some(Usd::dollars(20)), in_flight_max: None };
    assert_eq!(plan.pool_bounds, [(pool("gpu"), gpu), (pool("opus"), opus)].into());
    let budgets: Vec<_> = plan.tasks.iter().map(|task| task.budget).collect();
    assert_eq!(budgets, [Some(Usd(500_000)), None]);
    for (text, told) in [
        (r#"{"pools": {"gpu": {"limt": 2}}, "tasks": []}"#, "is `limit` meant?"),
        (r#"{"pools": {"gpu": {"budget": -1}}, "tasks": []}"#, "`budget`"),
        (r#"[{"id": "a", "verify": "true", "budget": 0}]"#, "has a budget of nothing"),
    ] {
        let errors = Plan::parse(text).unwrap_err().to_string();
        assert!(errors.contains(told), "{errors}");
    }
}

#[test]
fn p16_every_fault_is_told_at_once_with_line_column_and_task() {
    let text = r#"{
  "tasks": [
    {"id": "a", "verify": "true", "depends_on": ["b", "c", 7]},
    {"id": "b", "verfy": "x", "verify": "true", "depends_on": ["a"], "max_retries": -1},
    {"verify": "true", "role": " "},
    {"id": "b", "verify": [], "scope": ["../x"], "timeout": "soon", "pipeline": "other"},
    {"id": "d", "verify": 1, "inputs": {"x": 1, "x": {}}, "model": {}, "estimate": 0},
    "e",
    {"id": "f\u0007", "needs": {"gpu": 0, "": 1}},
  ],
  "pool": {},
  "pools": {"gpu": 1.5},
  "budget": -3,
  "defaults": {"id": "x"},
  "pipelines": {"p": ["verify"], "q": ["run", "merge", {"name": "x"}]},
}"#;
    insta::assert_snapshot!(told(text));
}

#[test]
fn what_comes_from_the_defaults_is_told_once_and_what_follows_from_a_fault_is_not_told() {
    let text = r#"{
  "tasks": [{"id": "a"}, {"id": "b"}, {"id": "c", "pipeline": "two", "depends_on": ["c"]},
            {"id": "d", "model": "x\u0000", "needs": {"gpu": 2}, "pipeline": "four"}],
  "defaults": {"pipeline": "one", "verify": "true", "needs": 5},
  "pipelines": {"two": 2, "three": ["run", "review", {"kind": "review", "name": ""}],
                "four": ["run"]},
  "pools": {"gpu": 1},
}"#;
    assert_eq!(
        told(text),
        "line 2, column 85, task `c`: depends on itself\n\
         line 3, column 34, task `d`: `model` has to be a text that says something, without NUL, not `x\\0`\n\
         line 3, column 62, task `d`: needs 2 permits of pool `gpu`, which has 1\n\
         line 4, column 28, task `a`: names pipeline `one`, which the plan does not have\n\
         line 4, column 62: `needs` has to be an object, not a number\n\
         line 5, column 24: `two` has to be a list, not a number\n\
         line 5, column 81: stage name `` is empty"
    );
}

#[test]
fn p16_texts_that_are_no_plan_are_refused_with_their_place() {
    let deep = format!("[{}]", "[".repeat(100_000));
    for (text, expected) in [
        ("", "line 1, column 1: there is no plan"),
        ("\u{feff}  // nothing\n", "line 1, column 1: there is no plan"),
        (" null", "line 1, column 2: there is no plan"),
        ("[\n{\"id\": \"a\" \"role\": \"x\"}]", "line 2, column 11: no valid JSON: expected comma"),
        ("[{\"id\": \"é\", role: 1}]", "line 1, column 14: no valid JSON: expected string for"),
        ("[{'id': 1}]", "line 1, column 3: no valid JSON: single-quoted strings are"),
        ("[1,,2]", "line 1, column 4: no valid JSON: unexpected comma"),
        ("[] []", "line 1, column 4: no valid JSON: text cannot contain more than one"),
        ("[{\"id\": \"a\n\"}]", "line 1, column 9: a quote that is not closed"),
        ("[\"\\ud800\"]", "line 1, column 3: no valid JSON: invalid unicode escape"),
        ("[\0]", "line 1, column 2: a NUL character"),
        (&deep, "line 1, column 513: nested more than 64 deep"),
    ] {
        let told = told(text);
        assert!(told.starts_with(expected), "{told}");
    }
    let errors = Plan::parse_bytes(b"[\n \xff\xfe").unwrap_err();
    assert_eq!(errors.to_string(), "line 2, column 2: the byte at offset 3 is no UTF-8");
    assert_eq!(errors.as_slice()[0].fault, TextFault::NotUtf8 { offset: 3 });
    assert_eq!(Plan::parse_bytes(b"\xef\xbb\xbf[]"), Ok(Plan::default()));
}

#[test]
fn inputs_may_be_64_deep_and_no_deeper() {
    let text = |depth: usize| {
        let (open, close) = ("[".repeat(depth - 1), "]".repeat(depth - 1));
        format!(r#"[{{"id": "a", "verify": "x", "inputs": {{"x": {open}{close}}}}}]"#)
    };
    let plan = Plan::parse(&text(64)).unwrap();
    let json = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
    assert!(told(&text(65)).contains("task `a`: nested more than 64 deep"));
}

#[test]
fn p16_no_more_faults_are_kept_than_stated_and_fewer_are_shown() {
    let tasks: Vec<String> = (0..2_000).map(|at| format!(r#"{{"id": "t{at}", "x": 1}}"#)).collect();
    let errors = Plan::parse(&format!("[{}]", tasks.join(","))).unwrap_err();
    assert_eq!((errors.as_slice().len(), errors.more()), (PLAN_ERRORS_MAX, 3_000));
    let told = errors.to_string();
    assert_eq!(told.lines().count(), 101);
    assert!(told.ends_with("\n… and 3900 more"), "{told}");
}

#[test]
fn p16_defaults_that_would_multiply_beyond_the_limits_are_refused() {
    let tasks: Vec<String> = (0..3_000).map(|at| format!(r#"{{"id": "t{at}"}}"#)).collect();
    for large in [format!("[{}]", "1,".repeat(700)), format!("\"{}\"", "x".repeat(30_000))] {
        let defaults = format!(r#"{{"verify": "true", "inputs": {{"x": {large}}}}}"#);
        let text = format!(r#"{{"defaults": {defaults}, "tasks": [{}]}}"#, tasks.join(","));
        let errors = Plan::parse(&text).unwrap_err();
        let [first] = errors.as_slice() else { panic!("one fault") };
        assert_eq!(first.fault, TextFault::DefaultsTooLarge { tasks: 3_000 });
        assert_eq!(first.position, Position { line: 1, column: 14 });
    }
}

#[test]
fn a_plan_for_a_live_run_may_depend_on_its_tasks() {
    let text = r#"[{"id": "b", "verify": "true", "depends_on": ["a"]}]"#;
    assert!(Plan::parse_with(text, &|task| *task == id("a")).is_ok());
    let errors = Plan::parse(text).unwrap_err();
    assert_eq!(errors.as_slice()[0].position, Position { line: 1, column: 47 });
    assert_eq!(errors.as_slice()[0].task, Some(TaskRef::Id(id("b"))));
}

#[test]
fn a_plan_of_20_000_tasks_is_read_and_checked() {
    let task = |at: usize| {
        let before = at.saturating_sub(1);
        let depends = if at == 0 { String::new() } else { format!("\"t{before}\"") };
        format!(r#"{{"id": "t{at}", "verify": "true", "depends_on": [{depends}]}}"#)
    };
    let tasks: Vec<String> = (0..20_000).map(task).collect();
    assert_eq!(Plan::parse(&format!("[{}]", tasks.join(","))).unwrap().tasks.len(), 20_000);
}

/// Texts with what is awkward in JSON: quotes, backslashes, line breaks, other scripts.
const TEXT: &str = "[a-z\"\\\\\n/*é日,\\]}]{0,6}x";

fn inputs() -> impl Strategy<Value = serde_json::Map<String, serde_json::Value>> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        prop::num::f64::NORMAL.prop_map(Into::into),
        TEXT.prop_map(Into::into),
    ];
    let value = leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Into::into),
            prop::collection::btree_map(TEXT, inner, 0..3)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    });
    prop::collection::btree_map(TEXT, value, 0..3).prop_map(|map| map.into_iter().collect())
}

fn specs() -> impl Strategy<Value = TaskSpec> {
    let span = || prop::option::of((1_u64..100_000_000).prop_map(Duration::from_millis));
    let verify = prop_oneof![
        TEXT.prop_map(VerifyCommand::Shell),
        prop::collection::vec(TEXT, 1..3).prop_map(VerifyCommand::Argv),
    ];
    let scope = prop::sample::subsequence(vec!["src", "a/*.rs", "**", "b/{c,d}"], 0..4);
    let words = (TEXT, TEXT, prop::option::of(TEXT), prop::bool::ANY);
    let budget = prop::option::of((1_u64..1_000_000_000_000).prop_map(Usd));
    let numbers = (0_u32..=1_000, any::<i32>(), span(), span(), 0_u32..4, budget);
    (words, numbers, inputs(), inputs(), verify, prop::option::of(scope)).prop_map(
        |((role, template, model, bare), numbers, inputs, metadata, verify, scope)| {
            let (max_retries, priority, estimate, timeout, gpu, budget) = numbers;
            let gpu = NonZeroU32::new(gpu).map(|gpu| (PoolName::parse("gpu").unwrap(), gpu));
            TaskSpec {
                role,
                prompt_template: template,
                model,
                pipeline: bare.then(|| PipelineName::parse("bare").unwrap()),
                verify: Some(verify),
                scope: scope.map(|patterns| Scope::parse(patterns).unwrap()),
                needs: gpu.into_iter().collect(),
                budget,
                ..TaskSpec { max_retries, priority, estimate, timeout, inputs, metadata, ..spec() }
            }
        },
    )
}

fn spec() -> TaskSpec {
    TaskSpec::new(id("x"))
}

/// Plans without a fault: each task depends on earlier ones only.
fn plans() -> impl Strategy<Value = Plan> {
    let task = (specs(), prop::collection::vec(any::<prop::sample::Index>(), 0..4));
    let budget = prop::option::of((0_u64..1_000_000_000_000).prop_map(Usd));
    (prop::collection::vec(task, 0..8), budget).prop_map(|(tasks, budget)| {
        let name = |at: usize| id(&format!("t{at}"));
        let tasks = tasks.into_iter().enumerate().map(|(at, (mut spec, earlier))| {
            spec.id = name(at);
            let earlier =
                earlier.into_iter().filter(|_| at > 0).map(|index| index.index(at.max(1)));
            let earlier: BTreeSet<usize> = earlier.collect();
            spec.depends_on = earlier.into_iter().map(name).collect();
            spec
        });
        let mut judge = StageSpec::of(StageKind::Review);
        (judge.model, judge.cap) = (Some("m".to_owned()), Usd(250_000));
        let bare = Pipeline::new(vec![StageSpec::of(StageKind::Run), judge]).unwrap();
        Plan {
            tasks: tasks.collect(),
            pipelines: [(PipelineName::parse("bare").unwrap(), bare)].into(),
            pools: [(PoolName::parse("gpu").unwrap(), 3)].into(),
            pool_bounds: budget
                .map(|_| {
                    let bounds = PoolBounds { budget, in_flight_max: budget.map(|_| 3) };
                    (PoolName::parse("gpu").unwrap(), bounds)
                })
                .into_iter()
                .collect(),
            budget,
        }
    })
}

/// The plan as a person might have written it.
fn written(plan: &Plan) -> serde_json::Value {
    let span = |span: Option<Duration>| span.map(|span| format!("{}ms", span.as_millis()));
    let task = |spec: &TaskSpec| {
        let mut task = serde_json::to_value(spec).unwrap();
        task["estimate"] = span(spec.estimate).into();
        task["timeout"] = span(spec.timeout).into();
        task["budget"] = spec.budget.map(Usd::as_dollars).into();
        task
    };
    let stage = |stage: &StageSpec| {
        let mut json = serde_json::to_value(stage).unwrap();
        let object = json.as_object_mut().unwrap();
        object.remove("cap");
        object.insert("cap_usd".to_owned(), stage.cap.as_dollars().into());
        object.insert("timeout".to_owned(), stage.timeout.as_secs().into());
        json
    };
    let pipelines: BTreeMap<&str, Vec<serde_json::Value>> = plan
        .pipelines
        .iter()
        .map(|(name, pipeline)| (name.as_str(), pipeline.stages().iter().map(stage).collect()))
        .collect();
    let pool = |(name, limit): (&PoolName, &u32)| {
        let bounds = plan.pool_bounds.get(name).copied().unwrap_or_default();
        let pool = serde_json::json!({
            "limit": limit,
            "budget": bounds.budget.map(Usd::as_dollars),
            "in_flight_max": bounds.in_flight_max,
        });
        (name.to_string(), if bounds == PoolBounds::default() { (*limit).into() } else { pool })
    };
    let pools: BTreeMap<String, serde_json::Value> = plan.pools.iter().map(pool).collect();
    serde_json::json!({
        "tasks": plan.tasks.iter().map(task).collect::<Vec<_>>(),
        "pipelines": pipelines,
        "pools": pools,
        "budget": plan.budget.map(Usd::as_dollars),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn p3_a_random_plan_reads_back_as_written_and_checks_clean(plan in plans()) {
        let text = serde_json::to_string_pretty(&written(&plan)).unwrap();
        let read = Plan::parse(&text).map_err(|errors| TestCaseError::fail(errors.to_string()))?;
        prop_assert_eq!(&read, &plan);
        prop_assert_eq!(plan.check(&|_| false), []);
    }

    #[test]
    fn a_plan_goes_through_its_canonical_json_unchanged(plan in plans()) {
        let json = serde_json::to_string(&plan).unwrap();
        let back: Plan = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(&back, &plan);
        prop_assert_eq!(&serde_json::to_string(&back).unwrap(), &json);
        let mut canonical = Canonical::new(0);
        plan.tasks.chunks(3).for_each(|tasks| canonical.tasks(tasks));
        let (by_hand, address) = canonical.finish(&plan);
        prop_assert_eq!(by_hand, json.as_bytes());
        prop_assert_eq!(address, BlobHash::of(json.as_bytes()));
    }

    #[test]
    fn p16_a_damaged_text_gives_a_plan_or_faults_with_places_in_it(
        plan in plans(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..4, any::<u8>()), 1..6),
    ) {
        let mut bytes = serde_json::to_vec(&written(&plan)).unwrap();
        for (index, kind, byte) in damage {
            let awkward = b"\"\\{}[],:/*\n0\0\xff-e. u";
            let at = index.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes[at] = awkward[usize::from(byte) % awkward.len()],
                2 => bytes.insert(at, awkward[usize::from(byte) % awkward.len()]),
                _ => drop(bytes.drain(at..(at + usize::from(byte) % 9).min(bytes.len() - 1).max(at))),
            }
        }
        for bytes in [bytes.clone(), String::from_utf8_lossy(&bytes).replace('\0', "x").into()] {
            if let Err(errors) = Plan::parse_bytes(&bytes) {
                prop_assert!(!errors.as_slice().is_empty() && !errors.to_string().is_empty());
                let lines = 1 + bytes.iter().filter(|byte| **byte == b'\n').count();
                prop_assert!(errors.as_slice().iter().all(|error| error.position.line <= lines));
                prop_assert!(errors.as_slice().is_sorted_by_key(|error| error.position));
            }
        }
    }
}

#[test]
fn canonical_json_sorts_names_whatever_their_order_in_the_text() {
    let one = r#"[{"id": "a", "verify": "x", "inputs": {"b": {"d": 1, "c": 2}, "a": 3}}]"#;
    let two = r#"[{"inputs": {"a": 3, "b": {"c": 2, "d": 1}}, "verify": "x", "id": "a"}]"#;
    let canonical = |text| serde_json::to_string(&Plan::parse(text).unwrap()).unwrap();
    assert_eq!(canonical(one), canonical(two));
    assert!(canonical(one).contains(r#""inputs":{"a":3,"b":{"c":2,"d":1}}"#));
}
