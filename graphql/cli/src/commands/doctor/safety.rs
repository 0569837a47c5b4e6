use std::{collections::BTreeMap, net::SocketAddr};

use client::view::format::count_noun;
use toolbox::ToolSet;
use toolsets::sources::SetConfig;

use super::Check;
use crate::config::{AccessConfig, Config};

pub(crate) fn check_confinement(sets: &[SetConfig], support: sandbox::Support) -> Check {
    let confinement = format!("{support}; limits and a clean environment hold everywhere");
    let refused = sets.iter().filter(|set| set.active && set.is_refused(support));
    let refused: Vec<_> = refused.map(|set| set.name.as_str()).collect();
    let usual = support.missing_for(&sandbox::Confinement::default());
    let result = match (refused.as_slice(), usual) {
        ([], None) => Ok(confinement),
        ([], Some(missing)) => Ok(format!(
            "{confinement}; commands with `confine` are refused, because the kernel lacks {missing}"
        )),
        (refused, _) => {
            let names = refused.join("`, `");
            Err(format!("commands of `{names}` are refused on this machine: {confinement}"))
        }
    };
    let help = "run Faber on Linux 6.2 or newer, with Landlock and seccomp, or set `confine: \
                {required: false}` for commands that may run unconfined";
    Check::new("confinement", result, help)
}

pub(crate) fn check_access(
    access: &AccessConfig,
    sets: &[SetConfig],
    listen: SocketAddr,
    variable: impl Fn(&str) -> Option<String>,
) -> Check {
    let result = match access.len() {
        0 if listen.ip().is_loopback() => {
            Ok("no tokens: only this machine can connect, and it has all rights".to_owned())
        }
        0 => Err(format!(
            "no tokens, so `{listen}` refuses connections from other machines with 403; this \
             machine has all rights"
        )),
        n => {
            let detail =
                format!("{}: every caller of `{listen}` needs one", count_noun(n, "token"));
            access.open(sets, variable).map(|_| detail).map_err(|err| err.to_string())
        }
    };
    let help = "name tokens in `access.tokens` and set their variables, or listen on 127.0.0.1";
    Check::new("access", result, help)
}

pub(crate) fn check_sign_in(
    config: &Config,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<Check> {
    let oidc = config.http_server.value.oidc.as_ref()?;
    let folder = config.base_folder().map_err(|err| err.to_string());
    let opened = folder.and_then(|folder| {
        let settings = oidc.open(&folder, &config.toolsets.value, variable);
        settings.map_err(|err| err.to_string())
    });
    let result = opened.map(|settings| {
        let rules = count_noun(settings.rules.len(), "rule");
        format!("`{}` identifies callers, and {rules} give them rights", settings.issuer)
    });
    let help = "set the variable or the file that `server.oidc` names";
    Some(Check::new("sign-in", result, help))
}

pub(crate) fn check_patterns(
    access: &AccessConfig,
    sets: &[SetConfig],
    toolsets: &[ToolSet],
) -> Option<Check> {
    let idle = access.find_unmatched(sets, toolsets);
    if idle.is_empty() {
        return None;
    }
    let help = "correct `tools` in `access.tokens`: `faber tools list` lists the tools, and `set.*` \
                means all tools of a set";
    Some(Check::new("tools of tokens", Err(format!("no tool matches {}", idle.join(", "))), help))
}

pub(crate) fn check_secrets(
    sets: &[SetConfig],
    variable: impl Fn(&str) -> Option<String>,
) -> Vec<Check> {
    let mut users: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for set in sets {
        for secret in set.secrets() {
            users.entry(secret).or_default().push(set.name.as_str());
        }
    }
    let mut unreadable: Vec<Check> = Vec::new();
    let mut file_count = 0;
    for set in sets {
        for file in set.secret_files() {
            file_count += 1;
            if let Err(err) = file.text() {
                let result = format!("{err}; `{}` needs it", set.name);
                let help = "correct the file, or remove it from the toolset";
                unreadable.push(Check::new(
                    format!("secret {}", file.written()),
                    Err(result),
                    help,
                ));
            }
        }
    }
    let named = users.len() + file_count;
    let mut missing: Vec<Check> = users
        .into_iter()
        .filter(|(secret, _)| variable(secret).is_none())
        .map(|(secret, sets)| {
            let result = format!("it is not in the environment; `{}` needs it", sets.join("`, `"));
            let help = "set it in Faber's environment, or remove it from the toolset";
            Check::new(format!("secret {secret}"), Err(result), help)
        })
        .chain(unreadable)
        .collect();
    if missing.is_empty() && named > 0 {
        let result = Ok(format!("{named} named, all set"));
        missing.push(Check::new("secrets", result, ""));
    }
    missing
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::{Value, json};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn check(tokens: Value, listen: &str, expected: Expect) {
        let config = AccessConfig::read(json!({ "tokens": tokens })).unwrap();
        let check = check_access(&config, &[], listen.parse().unwrap(), |name| {
            (name == "CI").then(|| "a-long-enough-token".to_owned())
        });
        expected.assert_eq(&check.result.unwrap_or_else(|error| format!("✗ {error}")));
    }

    #[test]
    fn the_access_check_depends_on_tokens_and_address() {
        check(
            json!([]),
            "127.0.0.1:80",
            expect!["no tokens: only this machine can connect, and it has all rights"],
        );
        check(
            json!([]),
            "0.0.0.0:80",
            expect![
                "✗ no tokens, so `0.0.0.0:80` refuses connections from other machines with 403; \
                 this machine has all rights"
            ],
        );
        let token = |name: &str| json!({ "name": name, "token_env": name, "role": "admin" });
        check(
            json!([token("CI")]),
            "[::]:80",
            expect!["1 token: every caller of `[::]:80` needs one"],
        );
        check(
            json!([token("CI"), token("OWNER")]),
            "127.0.0.1:80",
            expect![
                "✗ the access token `OWNER` is not set: set `OWNER` in Faber's environment, or remove the token from `access.tokens`"
            ],
        );
    }

    #[test]
    fn an_unsupported_confinement_is_a_problem() {
        let all = sandbox::Support {
            files: true,
            tcp: true,
            signals: true,
            calls: true,
            privileges: true,
        };
        let set = |active: bool, confine: Value| -> SetConfig {
            let source = json!({ "builtin": "system_tools", "system": { "confine": confine } });
            let set = json!({ "name": "sh", "active": active, "source": source });
            serde_json::from_value(set).unwrap()
        };
        let is_well = |set, support| check_confinement(&[set], support).result.is_ok();
        let old = sandbox::Support { files: false, ..all };
        let open = sandbox::Support { calls: false, ..all };
        assert!(is_well(set(true, json!({})), all));
        for support in [old, open] {
            assert!(!is_well(set(true, json!({})), support));
            assert!(is_well(set(false, json!({})), support));
            assert!(is_well(set(true, json!({ "required": false })), support));
            let output = check_confinement(&[], support).result.unwrap();
            assert!(output.contains("are refused"), "{output}");
        }
        assert!(is_well(set(true, json!({ "network": true, "sockets": true })), open));
    }

    #[test]
    fn missing_secrets_are_named_with_their_toolset() {
        let set = |name: &str, secret: &str| {
            let headers = json!({ "x": { "secret": secret } });
            let source = json!({ "mcp": { "url": "http://a/", "headers": headers } });
            serde_json::from_value(json!({ "name": name, "source": source })).unwrap()
        };
        let sets: [SetConfig; 3] = [set("a", "GONE"), set("b", "THERE"), set("c", "GONE")];
        let there = |name: &str| (name == "THERE").then(|| "x".to_owned());
        let checks_of = |sets: &[SetConfig]| {
            let checks = check_secrets(sets, there).into_iter();
            checks.map(|check| (check.name, check.result)).collect::<Vec<_>>()
        };
        let reason = "it is not in the environment; `a`, `c` needs it".to_owned();
        assert_eq!(checks_of(&sets), [("secret GONE".to_owned(), Err(reason))]);
        let well = "1 named, all set".to_owned();
        assert_eq!(checks_of(&sets[1..2]), [("secrets".to_owned(), Ok(well))]);
        assert_eq!(checks_of(&[]), []);
    }
}
