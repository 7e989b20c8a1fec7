//! A plan as JSON in the one form that its address is taken of.
//!
//! It is what serde writes, byte for byte, so that it is read back by serde. It is written by hand
//! because a plan may have a million tasks: it is hashed while it is at hand, and a text without
//! anything to escape, as most are, is copied whole.

use std::collections::BTreeMap;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::Plan;
use crate::id::{BlobHash, PipelineName, PoolName, TaskId};
use crate::money::Usd;
use crate::pipeline::Pipeline;
use crate::record::PoolBounds;
use crate::task::{TaskSpec, VerifyCommand, is_implement, is_retries};

/// Writes a plan, some tasks at a time.
#[derive(Debug)]
pub(crate) struct Canonical {
    out: Vec<u8>,
    hasher: Sha256,
    /// What of it is hashed.
    hashed: usize,
}

/// Bytes that most short tasks take at most: what is not written of it stays free.
const TASK_BYTES: usize = 128;

/// What comes after the tasks.
#[derive(Serialize)]
struct Rest<'a> {
    pipelines: &'a BTreeMap<PipelineName, Pipeline>,
    pools: &'a BTreeMap<PoolName, u32>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pool_bounds: &'a BTreeMap<PoolName, PoolBounds>,
    budget: Option<Usd>,
}

impl Canonical {
    /// Of a plan of so many tasks.
    pub(crate) fn new(tasks: usize) -> Self {
        let mut out = Vec::with_capacity(tasks.saturating_mul(TASK_BYTES));
        out.extend_from_slice(b"{\"tasks\":[");
        Self { out, hasher: Sha256::new(), hashed: 0 }
    }

    /// Writes the next tasks of the plan.
    pub(crate) fn tasks(&mut self, tasks: &[TaskSpec]) {
        for spec in tasks {
            self.task(spec);
            self.out.push(b',');
        }
        // The comma after the last one is no part of the plan.
        let end = self.out.len() - 1;
        if self.hashed < end {
            self.hasher.update(&self.out[self.hashed..end]);
            self.hashed = end;
        }
    }

    /// The whole plan, whose tasks are written, and its address.
    pub(crate) fn finish(mut self, plan: &Plan) -> (Vec<u8>, BlobHash) {
        if self.out.last() == Some(&b',') {
            self.out.pop();
        }
        let Plan { tasks: _, pipelines, pools, pool_bounds, budget } = plan;
        let rest = self.out.len() + 1;
        self.out.push(b']');
        write(&mut self.out, &Rest { pipelines, pools, pool_bounds, budget: *budget });
        self.out[rest] = b',';
        self.hasher.update(&self.out[self.hashed..]);
        (self.out, BlobHash::from_digest(&self.hasher.finalize()))
    }

    fn task(&mut self, spec: &TaskSpec) {
        let TaskSpec {
            id,
            depends_on,
            role,
            prompt_template,
            inputs,
            verify,
            max_retries,
            scope,
            priority,
            estimate,
            timeout,
            budget,
            needs,
            pipeline,
            model,
            metadata,
        } = spec;
        let out = &mut self.out;
        out.extend_from_slice(b"{\"id\":");
        text(out, id.as_str());
        dependencies(out, depends_on);
        named_text(out, b",\"role\":", Some(role.as_str()).filter(|role| !is_implement(role)));
        let template = Some(prompt_template.as_str()).filter(|template| !is_implement(template));
        named_text(out, b",\"prompt_template\":", template);
        named(out, b",\"inputs\":", Some(inputs).filter(|inputs| !inputs.is_empty()));
        match verify {
            Some(VerifyCommand::Shell(line)) => named_text(out, b",\"verify\":", Some(line)),
            Some(VerifyCommand::Argv(words)) => named(out, b",\"verify\":", Some(words)),
            None => {}
        }
        named(out, b",\"max_retries\":", Some(max_retries).filter(|max| !is_retries(max)));
        named(out, b",\"scope\":", scope.as_ref());
        named(out, b",\"priority\":", Some(priority).filter(|priority| **priority != 0));
        named(out, b",\"estimate\":", estimate.as_ref());
        named(out, b",\"timeout\":", timeout.as_ref());
        named(out, b",\"budget\":", budget.as_ref());
        named(out, b",\"needs\":", Some(needs).filter(|needs| !needs.is_empty()));
        named_text(out, b",\"pipeline\":", pipeline.as_ref().map(PipelineName::as_str));
        named_text(out, b",\"model\":", model.as_deref());
        named(out, b",\"metadata\":", Some(metadata).filter(|metadata| !metadata.is_empty()));
        out.push(b'}');
    }
}

fn dependencies(out: &mut Vec<u8>, ids: &[TaskId]) {
    let Some((first, others)) = ids.split_first() else { return };
    out.extend_from_slice(b",\"depends_on\":[");
    text(out, first.as_str());
    for id in others {
        out.push(b',');
        text(out, id.as_str());
    }
    out.push(b']');
}

fn named_text(out: &mut Vec<u8>, name: &[u8], value: Option<&str>) {
    if let Some(value) = value {
        out.extend_from_slice(name);
        text(out, value);
    }
}

fn named<T: Serialize>(out: &mut Vec<u8>, name: &[u8], value: Option<&T>) {
    if let Some(value) = value {
        out.extend_from_slice(name);
        write(out, value);
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    if !is_plain(text.as_bytes()) {
        write(out, text);
        return;
    }
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

/// Whether nothing in a text is escaped: eight bytes at once, the last of them maybe again.
fn is_plain(text: &[u8]) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    // The high bit of some byte is set if one is below the limit (and none above 127 counts).
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word & HIGH;
    let is = |word: u64, byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    let escaped = |word: &[u8; 8]| {
        let word = u64::from_ne_bytes(*word);
        below(word, b' ') | is(word, b'"') | is(word, b'\\')
    };
    let Some(last) = text.last_chunk() else {
        return !text.iter().any(|byte| *byte < b' ' || *byte == b'"' || *byte == b'\\');
    };
    let (words, _) = text.as_chunks();
    words.iter().fold(escaped(last), |any, word| any | escaped(word)) == 0
}

fn write<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("a plan holds nothing that JSON cannot say");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_by_hand_is_what_serde_writes_and_its_address_is_that_of_the_bytes() {
        let id = |text: &str| TaskId::parse(text).unwrap();
        let mut odd = TaskSpec::new(id("a \"quoted\" \\ name, é 日本 \u{2028}"));
        odd.depends_on = vec![id("x"), id("\\")];
        odd.role = "\u{7f}\n\0".to_owned();
        odd.verify = Some(VerifyCommand::Argv(vec!["make".to_owned(), "\t".to_owned()]));
        odd.model = Some(String::new());
        let plain = TaskSpec::new(id("x"));
        for tasks in [vec![], vec![plain.clone()], vec![plain, odd]] {
            let plan = Plan { tasks, ..Plan::default() };
            let mut canonical = Canonical::new(plan.tasks.len());
            plan.tasks.chunks(1).for_each(|tasks| canonical.tasks(tasks));
            let (bytes, address) = canonical.finish(&plan);
            assert_eq!(bytes, serde_json::to_vec(&plan).unwrap());
            assert_eq!(address, BlobHash::of(&bytes));
        }
    }

    #[test]
    fn each_character_of_one_byte_is_escaped_as_serde_does_wherever_it_stands() {
        for length in 1..=20 {
            for (at, byte) in (0..length).flat_map(|at| (0..=0x7f).map(move |byte| (at, byte))) {
                let mut bytes = vec![b'~'; length];
                bytes[at] = byte;
                let (mut out, plain) = (Vec::new(), String::from_utf8(bytes).unwrap());
                text(&mut out, &plain);
                assert_eq!(out, serde_json::to_vec(&plain).unwrap());
            }
        }
    }
}
