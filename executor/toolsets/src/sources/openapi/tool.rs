use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use http_client::{OutgoingRequest, parse_header};
use reqwest::{
    Url,
    header::{self, HeaderValue},
};
use secrets::{Redaction, TextOrSecret};
use serde_json::Value;
use shared::{
    id::ToolSetName,
    tool::{ErrorCode, ToolDefinition, ToolError},
};
use toolbox::{Tool, ToolContext, effect_rules::EffectRules};

use super::{
    operation::{Call, Operation},
    parameter::RequestParts,
    security::{Credential, Scheme},
};
use crate::http::{Caller, answer::read_output, invalid_parameters_error, resolve_headers};

#[derive(Debug)]
pub(super) struct Api {
    pub(super) caller: Caller,
    pub(super) headers: BTreeMap<String, TextOrSecret>,
    pub(super) auth: BTreeMap<String, Credential>,
    pub(super) schemes: BTreeMap<String, Scheme>,
    pub(super) effects: EffectRules,
}

#[derive(Debug)]
struct OperationTool {
    definition: Arc<ToolDefinition>,
    api: Arc<Api>,
    call: Call,
    obstacle: Option<String>,
}

pub(super) fn make_tool(
    set: &ToolSetName,
    api: &Arc<Api>,
    operation: Operation,
) -> Option<Arc<dyn Tool>> {
    let Operation { name, description, input_schema, output_schema, call, obstacle } = operation;
    let definition = ToolDefinition {
        name: name.parse().ok()?,
        set: set.clone(),
        description,
        input_schema,
        output_schema,
        effect: call.verb.effect(),
        examples: Vec::new(),
        is_callable: obstacle.is_none(),
    };
    let (definition, api) = (Arc::new(api.effects.apply(definition)), Arc::clone(api));
    Some(Arc::new(OperationTool { definition, api, call, obstacle }))
}

#[async_trait]
impl Tool for OperationTool {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    async fn call(&self, parameters: Arc<Value>, cx: ToolContext) -> Result<Value, ToolError> {
        if let Some(reason) = &self.obstacle {
            let message = format!("`{}` cannot be called: {reason}", self.definition.name);
            return Err(ToolError::new(ErrorCode::UNAVAILABLE, message).without_retry());
        }
        let mut redaction = Redaction::default();
        let request = self.build_request(&parameters, &mut redaction)?;
        let caller = &self.api.caller;
        let reply = caller.call(&self.definition, request, &cx, &redaction).await?;
        let is_unauthorized = matches!(reply.status.as_u16(), 401 | 403);
        let result = read_output(reply, self.definition.effect, caller.max_bytes, &redaction);
        match self.call.security.missing_schemes.first() {
            Some(scheme) if is_unauthorized => result.map_err(|err| {
                let hint = format!("{}; set `auth.{scheme}` of the toolset", err.message);
                ToolError { message: hint.into(), ..err }
            }),
            _ => result,
        }
    }
}

impl OperationTool {
    fn build_request(
        &self,
        parameters: &Value,
        redaction: &mut Redaction,
    ) -> Result<OutgoingRequest, ToolError> {
        let Call { verb, reach, body, .. } = &self.call;
        let mut parts = RequestParts::default();
        for (key, parameter) in &self.call.parameters {
            let value = parameters.get(key).unwrap_or(&Value::Null);
            parameter.write(value, &mut parts).map_err(|error| invalid_parameters_error(&error))?;
        }
        for name in &self.call.security.used_schemes {
            if let (Some(scheme), Some(credential)) =
                (self.api.schemes.get(name), self.api.auth.get(name))
            {
                scheme.write(name, credential, &mut parts, redaction)?;
            }
        }
        let url = self.build_url(&parts)?;
        let mut headers = resolve_headers(&self.api.headers, redaction)?;
        for (name, value) in &parts.headers {
            let (name, value) =
                parse_header(name, value).map_err(|error| invalid_parameters_error(&error))?;
            headers.insert(name, value);
        }
        if !parts.cookies.is_empty() {
            let cookies = parts.cookies.join("; ");
            let (name, value) = parse_header("cookie", &cookies)
                .map_err(|error| invalid_parameters_error(&error))?;
            headers.append(name, value);
        }
        let body = body.write(parameters).map(|(body, media)| {
            if let Ok(media) = HeaderValue::from_str(media) {
                headers.insert(header::CONTENT_TYPE, media);
            }
            body
        });
        Ok(OutgoingRequest { method: verb.method(), url, headers, body, reach: *reach })
    }

    fn build_url(&self, parts: &RequestParts) -> Result<Url, ToolError> {
        let Call { url, path, .. } = &self.call;
        let mut path = path.clone();
        for (name, value) in &parts.path {
            path = path.replace(&format!("{{{name}}}"), value);
        }
        if path.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err(invalid_parameters_error("`.` and `..` cannot be a part of the address"));
        }
        let mut complete_url = url.clone();
        complete_url.set_path(&format!("{}{path}", url.path().trim_end_matches('/')));
        let query = url.query().map(str::to_owned).into_iter().chain(parts.query.iter().cloned());
        let query: Vec<_> = query.collect();
        complete_url.set_query((!query.is_empty()).then(|| query.join("&")).as_deref());
        Ok(complete_url)
    }
}
