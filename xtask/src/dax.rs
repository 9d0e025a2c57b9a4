//! `cargo xtask dax`: a database in `dax` mode on a virtual NVDIMM under QEMU. The machine is
//! killed while it commits, booted again, and must find every commit that it acknowledged.
//!
//! It proves the mapping (`MAP_SYNC` is granted), the instructions, and recovery. It does not prove
//! that flushes are needed: what a virtual machine stores reaches the backing file at once. That is
//! what the simulated memory of the test suite is for.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::check::passes;

/// Kernel modules, each after those that it needs.
const MODULES: [&str; 9] = [
    "libnvdimm",
    "nfit",
    "nd_btt",
    "nd_pmem",
    "crc32c_generic",
    "crc16",
    "mbcache",
    "jbd2",
    "ext4",
];

/// How often the machine is killed.
const KILLS: u32 = 3;

/// How many commits it acknowledges before that.
const ACKED: u64 = 40_000;

/// The first process of the virtual machine: the NVDIMM becomes a namespace with a file system on
/// it, once, and the program runs there.
const INIT: &str = r#"#!/bin/busybox sh
export PATH=/bin LD_LIBRARY_PATH=/lib/x86_64-linux-gnu
/bin/busybox --install -s /bin
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev
for m in $(cat /modules/order); do insmod /modules/$m.ko || echo "init: no module $m"; done
if ! [ -b /dev/pmem0 ] || ! grep -q ram /sys/bus/nd/devices/pfn0.0/mode 2>/dev/null; then
  cd /sys/bus/nd
  echo namespace0.0 > drivers/nd_pmem/unbind
  echo ram > devices/pfn0.0/mode
  echo 8f0c8a1c-54c6-4c5a-9d3c-0b5f1d4f7a11 > devices/pfn0.0/uuid
  echo namespace0.0 > devices/pfn0.0/namespace
  echo pfn0.0 > drivers/nd_pmem/bind
  cd /
fi
for wait in 1 2 3 4 5 6 7 8 9 10; do [ -b /dev/pmem0 ] && break; usleep 200000; done
mount -t ext4 -o dax=always /dev/pmem0 /mnt 2>/dev/null || {
  /own/mke2fs -q -F -t ext4 -b 4096 /dev/pmem0
  mount -t ext4 -o dax=always /dev/pmem0 /mnt || echo "init: no DAX file system"
}
/own/guest dax /mnt
echo "guest: ended with $?"
poweroff -f
"#;

/// Runs the whole of it; whether it went well. What is missing is said, and is an error.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let home = root.join("target/dax");
    fs::create_dir_all(&home)?;
    let kernel = kernel(&home)?;
    build_guest(root)?;
    let initrd = initrd(root, &home, &kernel)?;
    let nvdimm = home.join("nvdimm");
    fs::File::create(&nvdimm)?.set_len(256 << 20)?;
    let mut acked = 0;
    for boot in 0..=KILLS {
        let machine = Machine::boot(&kernel.join("vmlinuz"), &initrd, &nvdimm)?;
        let (found, last) = machine.watch(boot < KILLS)?;
        println!("dax: boot {boot}: found {found} commits, {acked} were acknowledged");
        if found < acked {
            bail!("{} acknowledged commits are missing", acked - found);
        }
        acked = last;
    }
    println!("dax: {acked} commits acknowledged over {KILLS} kills, none lost");
    Ok(true)
}

/// What is missing, for the report to the user.
pub(crate) fn missing() -> Vec<&'static str> {
    let tools = [
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("busybox", "busybox-static"),
        ("cpio", "cpio"),
        ("mke2fs", "e2fsprogs"),
        ("apt-get", "apt"),
    ];
    let found =
        |tool: &str| Command::new("which").arg(tool).output().is_ok_and(|o| o.status.success());
    tools.into_iter().filter(|(tool, _)| !found(tool)).map(|(_, package)| package).collect()
}

/// A stock kernel and its modules, taken out of Debian's package: nothing is installed.
fn kernel(home: &Path) -> Result<PathBuf> {
    let kernel = home.join("kernel");
    if kernel.join("vmlinuz").exists() {
        return Ok(kernel);
    }
    let names =
        output(Command::new("apt-cache").args(["search", "^linux-image-6.1.0-[0-9]+-amd64$"]))?;
    let package = names.lines().last().and_then(|line| line.split_whitespace().next());
    let package = package.context("apt knows no linux-image-6.1.0-*-amd64; run apt-get update")?;
    println!("dax: fetching {package}");
    passes(Command::new("apt-get").args(["download", package]).current_dir(home))?;
    let is_package = |p: &PathBuf| p.extension().is_some_and(|e| e == "deb");
    let archive = fs::read_dir(home)?.flatten().map(|e| e.path()).find(is_package);
    let archive = archive.context("the package was not downloaded")?;
    passes(Command::new("dpkg").arg("-x").arg(&archive).arg(home.join("unpacked")))?;
    fs::create_dir_all(&kernel)?;
    let found = |name: &str| -> Result<PathBuf> {
        let unpacked = home.join("unpacked");
        let path = output(Command::new("find").arg(unpacked).args(["-name", name]))?;
        path.lines().next().map(PathBuf::from).with_context(|| format!("no {name} in {package}"))
    };
    for module in MODULES {
        let file = format!("{module}.ko");
        fs::copy(found(&file)?, kernel.join(&file))?;
    }
    fs::copy(found("vmlinuz-*")?, kernel.join("vmlinuz"))?;
    fs::remove_dir_all(home.join("unpacked"))?;
    fs::remove_file(archive)?;
    Ok(kernel)
}

fn build_guest(root: &Path) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["build", "--release", "--package", "terrace", "--example", "guest"];
    passes(Command::new(cargo).current_dir(root).args(arguments))
}

/// The first file system of the machine: busybox, the program, their libraries, the modules.
fn initrd(root: &Path, home: &Path, kernel: &Path) -> Result<PathBuf> {
    let tree = home.join("tree");
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    for folder in ["bin", "own", "proc", "sys", "dev", "mnt", "etc", "modules"] {
        fs::create_dir_all(tree.join(folder))?;
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let which = |tool| output(Command::new("which").arg(tool)).map(|p| PathBuf::from(p.trim()));
    add_program(&tree, "bin", &which("busybox")?)?;
    // Not beside busybox, which has a poorer one of the same name.
    add_program(&tree, "own", &which("mke2fs")?)?;
    add_program(&tree, "own", &target.join("release/examples/guest"))?;
    for module in MODULES {
        let file = format!("{module}.ko");
        fs::copy(kernel.join(&file), tree.join("modules").join(&file))?;
    }
    fs::write(tree.join("modules/order"), MODULES.join("\n"))?;
    fs::write(tree.join("init"), INIT)?;
    fs::set_permissions(tree.join("init"), fs::Permissions::from_mode(0o755))?;
    let image = home.join("initrd");
    let pack = format!("find . | cpio -o -H newc --quiet > {}", image.display());
    passes(Command::new("sh").args(["-c", &pack]).current_dir(&tree))?;
    Ok(image)
}

/// Copies a program and the libraries that it is linked with.
fn add_program(tree: &Path, folder: &str, program: &Path) -> Result<()> {
    let name = program.file_name().context("a program has a name")?;
    fs::copy(program, tree.join(folder).join(name))
        .with_context(|| format!("copying {}", program.display()))?;
    // A static program has none, and ldd says so by failing.
    let libraries = Command::new("ldd").arg(program).output()?;
    for word in String::from_utf8_lossy(&libraries.stdout).split_whitespace() {
        if let Some(inside) = word.strip_prefix('/') {
            let to = tree.join(inside);
            fs::create_dir_all(to.parent().context("a library has a folder")?)?;
            fs::copy(word, to)?;
        }
    }
    Ok(())
}

/// A running virtual machine.
struct Machine(Child);

impl Machine {
    fn boot(kernel: &Path, initrd: &Path, nvdimm: &Path) -> Result<Machine> {
        let memory =
            format!("memory-backend-file,id=m,share=on,mem-path={},size=256M", nvdimm.display());
        let child = Command::new("qemu-system-x86_64")
            .args(["-machine", "pc,nvdimm=on", "-cpu", "max", "-m", "512M,slots=2,maxmem=1G"])
            .args(["-object", &memory, "-device", "nvdimm,memdev=m"])
            .arg("-kernel")
            .arg(kernel)
            .arg("-initrd")
            .arg(initrd)
            .args(["-append", "console=ttyS0 panic=-1 quiet", "-nographic", "-no-reboot"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting qemu-system-x86_64")?;
        Ok(Machine(child))
    }

    /// Follows the console until enough was acknowledged since the boot, and kills the machine
    /// then: what it found, and the last acknowledgement. Without `commits`, only what it found.
    fn watch(mut self, commits: bool) -> Result<(u64, u64)> {
        let console = self.0.stdout.take().context("the console is piped")?;
        let mut found = None;
        let mut said = Vec::new();
        for line in BufReader::new(console).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).trim().to_string();
            let number = || line.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok());
            // The machine's first words may stand before it.
            if line.contains("mode dax, found ") {
                found = number();
            } else if line.starts_with("acked ")
                && let (Some(found), Some(acked)) = (found, number())
                && (!commits || acked >= found + ACKED)
            {
                return Ok((found, acked));
            }
            said.push(line);
        }
        bail!("the machine ended by itself; it said:\n{}", said.join("\n"))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It is killed, not shut down: that is what this is about.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
