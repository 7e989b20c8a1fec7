//! What templates include, in all of their branches: those that no rendering comes to as well; and what
//! they give to it.

use std::collections::{BTreeSet, HashMap};

use handlebars::Handlebars;
use handlebars::template::{
    DecoratorTemplate, HelperTemplate, Parameter, Subexpression, Template, TemplateElement,
};

use super::TemplateError;

/// The templates that this one includes, or one that it includes, and that do not exist.
pub(super) fn missing(engine: &Handlebars<'static>, name: &str) -> Vec<TemplateError> {
    let mut found = Found::default();
    let mut seen = BTreeSet::from([name.to_owned()]);
    let mut open = vec![name.to_owned()];
    while let Some(name) = open.pop() {
        let Some(template) = engine.get_template(&name) else { continue };
        let before = found.includes.len();
        found.template(&name, template);
        for include in &found.includes[before..] {
            if seen.insert(include.partial.clone()) {
                open.push(include.partial.clone());
            }
        }
    }
    let Found { includes, inline } = found;
    let is_missing =
        |it: &Include| !engine.has_template(&it.partial) && !inline.contains(&it.partial);
    let error = |include| {
        let Include { template, line, column, partial } = include;
        TemplateError::MissingPartial { template, line, column, partial }
    };
    includes.into_iter().filter(is_missing).map(error).collect()
}

/// Why a template cannot be rendered that includes itself by way of others: it would never end.
pub(super) fn circle(engine: &Handlebars<'static>, name: &str) -> Option<TemplateError> {
    let mut done = BTreeSet::new();
    walk(engine, name, &mut Vec::new(), &mut done)
}

/// Goes through what a template includes; `path` has those that are gone through on the way to it.
fn walk(
    engine: &Handlebars<'static>,
    name: &str,
    path: &mut Vec<String>,
    done: &mut BTreeSet<String>,
) -> Option<TemplateError> {
    let template = engine.get_template(name)?;
    let mut found = Found::default();
    found.template(name, template);
    path.push(name.to_owned());
    for Include { template, line, column, partial } in found.includes {
        if path.contains(&partial) {
            let why = format!("it includes `{partial}`, which includes it in turn, without an end");
            return Some(TemplateError::Failed { template, line, column, why });
        }
        if !done.contains(&partial)
            && let Some(error) = walk(engine, &partial, path, done)
        {
            return Some(error);
        }
    }
    path.pop();
    done.insert(name.to_owned());
    None
}

/// The name of the helper that refuses a value that is not there.
pub(super) const GIVEN: &str = "given";

/// The name of the helper that refuses a plain name without a value.
pub(super) const KNOWN: &str = "known";

/// Makes a template refuse to include another one with a value that is not there, which would be
/// nothing in it without a word; and a plain name without a value within an expression in brackets,
/// which `and` and `or` take for false.
pub(super) fn demand(template: &mut Template) {
    for element in &mut template.elements {
        if let TemplateElement::HelperBlock(helper)
        | TemplateElement::Expression(helper)
        | TemplateElement::HtmlExpression(helper) = element
        {
            helper.params.iter_mut().chain(helper.hash.values_mut()).for_each(demand_in_brackets);
            helper.template.iter_mut().chain(&mut helper.inverse).for_each(demand);
        } else if let TemplateElement::DecoratorBlock(block) = element {
            block.template.iter_mut().for_each(demand);
        } else if let TemplateElement::PartialExpression(partial)
        | TemplateElement::PartialBlock(partial) = element
        {
            partial.template.iter_mut().for_each(demand);
            for value in partial.hash.values_mut().chain(&mut partial.params) {
                demand_in_brackets(value);
                if matches!(value, Parameter::Path(_)) {
                    ask_first(GIVEN, value);
                }
            }
        }
    }
}

/// The same within an expression in brackets, and those in it.
fn demand_in_brackets(value: &mut Parameter) {
    let Parameter::Subexpression(expression) = value else { return };
    let TemplateElement::Expression(helper) = &mut *expression.element else { return };
    for value in helper.params.iter_mut().chain(helper.hash.values_mut()) {
        demand_in_brackets(value);
        if matches!(value, Parameter::Path(_)) {
            ask_first(KNOWN, value);
        }
    }
}

/// Puts a helper around a value.
fn ask_first(helper: &str, value: &mut Parameter) {
    let name = Parameter::Name(helper.to_owned());
    let asked = Subexpression::new(name, vec![value.clone()], HashMap::new());
    *value = Parameter::Subexpression(asked);
}

/// A place where a template is included.
struct Include {
    template: String,
    line: Option<usize>,
    column: Option<usize>,
    partial: String,
}

#[derive(Default)]
struct Found {
    includes: Vec<Include>,
    /// The names of those that are defined within a template.
    inline: BTreeSet<String>,
}

impl Found {
    fn template(&mut self, name: &str, template: &Template) {
        for (number, element) in template.elements.iter().enumerate() {
            if let TemplateElement::HelperBlock(block) = element {
                self.block(name, block);
            } else if let TemplateElement::DecoratorBlock(block) = element {
                self.inline.extend(block.params.first().and_then(literal).map(str::to_owned));
                self.inner(name, block.template.as_ref());
            } else if let TemplateElement::PartialExpression(partial) = element {
                let place = template.mapping.get(number).map(|place| (place.0, place.1));
                self.include(name, partial, place.unzip());
            } else if let TemplateElement::PartialBlock(partial) = element {
                // What it holds takes the place of one that does not exist.
                self.inner(name, partial.template.as_ref());
            }
        }
    }

    fn block(&mut self, name: &str, block: &HelperTemplate) {
        self.inner(name, block.template.as_ref());
        self.inner(name, block.inverse.as_ref());
    }

    fn inner(&mut self, name: &str, template: Option<&Template>) {
        if let Some(template) = template {
            self.template(name, template);
        }
    }

    fn include(
        &mut self,
        name: &str,
        partial: &DecoratorTemplate,
        (line, column): (Option<usize>, Option<usize>),
    ) {
        // A name that is computed is known when it is rendered, and `@partial-block` is none.
        let partial = partial.name.as_name();
        if let Some(partial) = partial.filter(|partial| !partial.starts_with('@')) {
            let (template, partial) = (name.to_owned(), partial.to_owned());
            self.includes.push(Include { template, line, column, partial });
        }
    }
}

fn literal(parameter: &Parameter) -> Option<&str> {
    if let Parameter::Literal(value) = parameter { value.as_str() } else { None }
}
