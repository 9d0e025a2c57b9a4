//! YCSB's own Java client on the C interface: the example in `bindings/c/examples/ycsb`.

use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{CRATE, built_for_tests, installed_for_tests};
use crate::check::Setting;

/// The exit status of the script for what is missing, in words it has printed.
const MISSING: i32 = 3;

/// The stage of the check, at length: workloads A to F with a thousand records, each answer checked
/// by YCSB.
pub(crate) fn check(setting: &mut Setting) -> Result<()> {
    let libraries = built_for_tests(setting)?;
    let installed = installed_for_tests(setting, &libraries)?;
    let mut command = Command::new(setting.root.join(CRATE).join("examples/ycsb/run"));
    command.arg(installed.join("lib")).env("TERRACE_YCSB_WORK", installed.join("ycsb"));
    command.args(["-threads", "4", "-p", "terrace.option.pm_size=16MiB"]);
    let status = command.status().with_context(|| format!("starting {command:?}"))?;
    match status.code() {
        Some(0) => Ok(()),
        Some(MISSING) => {
            setting.leave_out("it lacks what is named above");
            Ok(())
        }
        _ => bail!("YCSB's client on the C interface: {status}"),
    }
}
