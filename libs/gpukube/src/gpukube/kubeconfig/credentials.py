"""Credentials of a kubeconfig by the official loader, with an error where there are none.

The official loader logs the failure of a credential plugin and goes on without credentials, and it
prefers a stale token to the token file. Here the order is that of kubectl: the token file, the
token, the password, the credential plugin, the auth provider.
"""

import base64
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from kubernetes.config import ConfigException, dateutil, exec_provider, kube_config

from gpukube.errors import ConfigError

_ALWAYS: Final = datetime(2001, 1, 1, tzinfo=UTC)
"""A token file counts as expired, so that it is read again whenever credentials are renewed."""

_File: Any = kube_config.FileOrData
_Plugin: Any = exec_provider.ExecProvider
_rfc3339: Any = dateutil.parse_rfc3339


class CredentialLoader(kube_config.KubeConfigLoader):
    """The official loader; its methods for credentials are replaced.

    No error contains a token or a password.
    """

    _last = ""

    def _load_authentication(self) -> None:
        user: Any = self._user
        if not user:
            return
        if not (self._token_of(user) or self._password_of(user) or self._plugin_of(user)):
            self._provider_of(user)
        token = self.__dict__.get("token", "")
        if not (token.isascii() and token.isprintable()):
            raise ConfigError("getting credentials: an HTTP header cannot carry the token")

    def _token_of(self, user: Any) -> bool:
        """The token file, and the last token that it had where it cannot be read."""
        token = user.safe_get("token") or ""
        if file := user.safe_get("tokenFile"):
            path = Path(self._folder(user), file)
            self.expiry = _ALWAYS
            try:
                self._last = path.read_text(errors="replace").strip() or self._last
            except OSError as error:
                if not (self._last or token):
                    raise ConfigError(f"getting credentials: {error}") from error
            token = self._last or token
            if not token:
                raise ConfigError(f"getting credentials: the token file {path} is empty")
        if token:
            self.token = f"Bearer {token}"
        return bool(token)

    def _password_of(self, user: Any) -> bool:
        pair = [user.safe_get("username") or "", user.safe_get("password") or ""]
        if any(pair):
            self.token = "Basic " + base64.b64encode(":".join(pair).encode()).decode()
        return any(pair)

    def _plugin_of(self, user: Any) -> bool:
        if "exec" not in user:
            return False
        status = self._output_of(user["exec"], self._folder(user))
        token = status.get("token")
        certificate, key = (
            status.get(f"client{part}Data") and self._file_of(status, f"client{part}Data")
            for part in ("Certificate", "Key")
        )
        if token:
            self.token = f"Bearer {token}"
        if certificate and key:
            self.cert_file, self.key_file = certificate, key
        elif not token:
            raise ConfigError(
                "getting credentials: the exec plugin returned neither a token nor a certificate"
                " with its key"
            )
        if expiry := status.get("expirationTimestamp"):
            self.expiry = _rfc3339(expiry)
        return True

    def _output_of(self, plugin: Any, folder: str) -> dict[str, Any]:
        try:
            found = _Plugin(plugin, folder, self._cluster).run()
        except FileNotFoundError as error:
            hint = str(plugin.safe_get("installHint") or "")
            words = f"getting credentials: exec plugin {plugin['command']} not found"
            raise ConfigError(f"{words}: {hint}" if hint else words) from error
        except (ConfigException, OSError, ValueError, TypeError, KeyError) as error:
            raise ConfigError(f"getting credentials: {error}") from error
        return found if isinstance(found, dict) else {}

    def _file_of(self, status: dict[str, Any], field: str) -> str:
        path = self._temp_file_path
        file = _File(status, None, field, base64_file_content=False, temp_file_path=path)
        return str(file.as_file())

    def _provider_of(self, user: Any) -> None:
        load: Any = self._load_auth_provider_token
        if "auth-provider" in user and not load():
            name = user["auth-provider"].safe_get("name")
            raise ConfigError(f"getting credentials: no token from auth provider {name}")

    def _folder(self, user: Any) -> str:
        base: Any = self._get_base_path
        return str(base(user.path))
