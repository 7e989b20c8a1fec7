//! What templates can do beside naming values, strictly: what has no value is refused.

use handlebars::{
    Context, Handlebars, Helper, HelperDef, HelperResult, JsonTruthy as _, Output, PathAndJson,
    RenderContext, RenderError, RenderErrorReason, Renderable as _, ScopedJson,
};

use super::partials;

/// Adds all of them.
pub(super) fn register(engine: &mut Handlebars<'static>) {
    engine.register_helper("if", Box::new(If { when: true }));
    engine.register_helper("unless", Box::new(If { when: false }));
    engine.register_helper("json", Box::new(json));
    engine.register_helper(partials::GIVEN, Box::new(Given));
    engine.register_helper(partials::KNOWN, Box::new(Known));
}

/// `if` and `unless` that refuse a plain name without a value: that is a slip of the pen, which the
/// usual ones take for false. A path such as `inputs.notes` may have none.
struct If {
    when: bool,
}

impl HelperDef for If {
    fn call<'reg: 'rc, 'rc>(
        &self,
        helper: &Helper<'rc>,
        engine: &'reg Handlebars<'reg>,
        context: &'rc Context,
        state: &mut RenderContext<'reg, 'rc>,
        out: &mut dyn Output,
    ) -> HelperResult {
        let value = helper.param(0).ok_or(RenderErrorReason::ParamNotFoundForIndex("if", 0))?;
        refuse_slip(value, state)?;
        let holds = value.value().is_truthy(false) == self.when;
        let chosen = if holds { helper.template() } else { helper.inverse() };
        chosen.map_or(Ok(()), |chosen| chosen.render(engine, context, state, out))
    }
}

/// Refuses a plain name without a value, but within a block about another value, where it is one of
/// that one's fields.
fn refuse_slip(value: &PathAndJson<'_>, state: &RenderContext<'_, '_>) -> Result<(), RenderError> {
    let is_plain = value
        .relative_path()
        .is_some_and(|path| !path.contains(['.', '/', '@', '[']) && path != "this");
    let is_outside = state.block().is_none_or(|block| block.base_path().is_empty());
    if value.is_value_missing() && is_plain && is_outside {
        return Err(RenderError::strict_error(value.relative_path()));
    }
    Ok(())
}

/// The value itself; a plain name has to have one.
struct Known;

impl HelperDef for Known {
    fn call_inner<'reg: 'rc, 'rc>(
        &self,
        helper: &Helper<'rc>,
        _: &'reg Handlebars<'reg>,
        _: &'rc Context,
        state: &mut RenderContext<'reg, 'rc>,
    ) -> Result<ScopedJson<'rc>, RenderError> {
        let Some(value) = helper.param(0) else { return Ok(ScopedJson::Missing) };
        refuse_slip(value, state)?;
        if value.is_value_missing() {
            return Ok(ScopedJson::Missing);
        }
        Ok(ScopedJson::Derived(value.value().clone()))
    }
}

/// The value itself, which there has to be: what is given to a partial is not looked at otherwise.
struct Given;

impl HelperDef for Given {
    fn call_inner<'reg: 'rc, 'rc>(
        &self,
        helper: &Helper<'rc>,
        _: &'reg Handlebars<'reg>,
        _: &'rc Context,
        _: &mut RenderContext<'reg, 'rc>,
    ) -> Result<ScopedJson<'rc>, RenderError> {
        let given = helper.param(0).filter(|given| !given.is_value_missing());
        let path = helper.param(0).and_then(|given| given.relative_path());
        let given = given.ok_or_else(|| RenderError::strict_error(path))?;
        Ok(ScopedJson::Derived(given.value().clone()))
    }
}

/// Writes a text as it is and any other value as JSON.
fn json(
    helper: &Helper<'_>,
    _: &Handlebars<'_>,
    _: &Context,
    _: &mut RenderContext<'_, '_>,
    out: &mut dyn Output,
) -> HelperResult {
    let value = helper.param(0).ok_or(RenderErrorReason::ParamNotFoundForIndex("json", 0))?;
    if value.is_value_missing() {
        return Err(RenderError::strict_error(value.relative_path()));
    }
    match value.value().as_str() {
        Some(text) => out.write(text)?,
        None => out.write(&value.value().to_string())?,
    }
    Ok(())
}
