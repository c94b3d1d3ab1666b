"""The steps that make a machine ready: environment, engine, images, key.

Every step looks first and does nothing when all is there, so a second run starts at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tools import engine, environment, images
from tools.child import ask_child, run_child
from tools.steps import SetupError, Steps
from tools.system import Site, ensure_tools, look

ROOT = Path(__file__).resolve().parent.parent
EXIT_USAGE = 2


class Setup:
    """One invocation: its settings, its steps, and the environment that children get."""

    def __init__(self, env: Mapping[str, str], steps: Steps) -> None:
        self.site = Site(root=ROOT, env=env, system=look(env))
        self.steps = steps
        self.child_env = environment.clean_env(env)
        self.sealbench = str(self.site.venv / "bin" / "sealbench")
        self.python = str(self.site.venv / "bin" / "python")

    def setting(self, name: str) -> str | None:
        """Return a make variable; None when it is unset or empty."""
        return self.site.env.get(name) or None

    def required(self, name: str, example: str) -> str:
        """Return a make variable that the target cannot do without."""
        value = self.setting(name)
        if value is None:
            raise SetupError(
                f"{name} is not set", fix=f"for example: {example}", exit_code=EXIT_USAGE
            )
        return value

    def options(self, **settings: str) -> list[str]:
        """Return ``--option value`` for each make variable that is set."""
        pairs = [(f"--{option.replace('_', '-')}", name) for option, name in settings.items()]
        return [part for option, name in pairs if (v := self.setting(name)) for part in (option, v)]

    def prepare_environment(self, *, dev: bool = False) -> None:
        with self.steps.step("Python environment") as step:
            environment.ensure(self.site, step, dev=dev)

    def prepare_engine(self, names: Sequence[str]) -> None:
        """Find or make an engine, and these images in it."""
        with self.steps.step("Container engine") as step:
            endpoint = engine.ensure(self.site, step)
            self.child_env["DOCKER_HOST"] = endpoint.url
        if not names:
            return
        with self.steps.step("Method images") as step:
            if images.are_ready(self.site, names, endpoint):
                step.done(f"{', '.join(names)}: present")
                return
            if self.site.system.can_install:  # else the build tells whether it needs it
                ensure_tools({"mmdebstrap": "mmdebstrap"}, self.site, step)
            step.working(f"building {', '.join(names)} from pinned inputs where missing")
            self._must([self.sealbench, "images", "build", *names])
            images.record(self.site, names)
            step.done(f"{', '.join(names)}: ready")

    def prepare_key(self) -> None:
        """Make a signing key when there is none and none is named."""
        with self.steps.step("Signing key") as step:
            path = Path(self.setting("KEY") or keys_directory(self.site.env) / "default.pem")
            if self.setting("KEY") is None and not path.exists():
                self.ask("keys", "generate", "--if-missing")
                step.done(f"made {path}; keep it to yourself")
            else:
                step.done(str(path))

    def call(self, *arguments: str) -> int:
        """Run `sealbench` on our terminal."""
        return run_child([self.sealbench, *arguments], self.child_env)

    def ask(self, *arguments: str) -> dict[str, object]:
        """Run `sealbench ... --json` and return its answer."""
        return ask_child([self.sealbench, *arguments, "--json"], self.child_env)

    def python_module(self, module: str, *arguments: str) -> int:
        """Run a module of the environment on our terminal, from the top of the checkout."""
        return run_child([self.python, "-m", module, *arguments], self.child_env)

    def _must(self, command: Sequence[str]) -> None:
        code = run_child(command, self.child_env)
        if code != 0:
            # Its own message stands above already.
            raise SetupError(
                f"`{' '.join(['sealbench', *command[1:]])}` failed",
                fix="see its message above",
                exit_code=code,
            )


def keys_directory(env: Mapping[str, str]) -> Path:
    """Return where `sealbench` keeps its keys."""
    chosen = env.get("SEALBENCH_KEYS")
    return Path(chosen) if chosen else Path.home() / ".config" / "sealbench" / "keys"
