{{/* Invalid combinations of values, refused with a sentence. */}}

{{- define "gpushare.checks" -}}
{{- $values := .Values -}}
{{- range $part, $keys := include "gpushare.neededValues" . | fromYaml -}}
{{- range $key := $keys -}}
{{- $path := printf "%s.%s" $part $key | trimPrefix "top." -}}
{{- $value := $values -}}
{{- range splitList "." $path -}}
{{- $value = index (default dict $value) . -}}
{{- end -}}
{{- if kindIs "invalid" $value -}}
{{- fail (printf "%s is null, which removes its default: leave it out, or set a value. For a key that is new in this chart use helm upgrade --reset-then-reuse-values, not --reuse-values" $path) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $name := include "gpushare.fullname" . -}}
{{- if contains "." $name -}}
{{- fail (printf "the name %s has a dot, which names of Services cannot have: choose another release name or fullnameOverride" $name) -}}
{{- end -}}
{{- if not (regexMatch "^[a-z]" $name) -}}
{{- fail (printf "the name %s does not begin with a letter, as names of Services must: choose another release name or fullnameOverride" $name) -}}
{{- end -}}
{{- if include "gpushare.second" . -}}
{{- if eq $values.scheduler.name "default-scheduler" -}}
{{- fail "scheduler.name is default-scheduler, which is the cluster's own: two schedulers of one name would place the same pods; choose another name, or scheduler.mode=extender" -}}
{{- end -}}
{{- if $values.extender.service.clusterIP -}}
{{- fail "extender.service.clusterIP is set, but scheduler.mode=second has no Service: remove it, or set scheduler.mode=extender" -}}
{{- end -}}
{{- if eq (int $values.extender.port) 10259 -}}
{{- fail "extender.port is 10259, which kube-scheduler beside it uses: choose another port" -}}
{{- end -}}
{{- if eq (int $values.extender.metricsPort) 10259 -}}
{{- fail "extender.metricsPort is 10259, which kube-scheduler beside it uses: choose another port" -}}
{{- end -}}
{{- with $values.scheduler.leaderElection -}}
{{- if or (ge (int .renewSeconds) (int .leaseSeconds)) (ge (mulf 1.2 .retrySeconds) (float64 .renewSeconds)) -}}
{{- fail (printf "scheduler.leaderElection: of retrySeconds=%v, renewSeconds=%v and leaseSeconds=%v each must be less than the next, and a retry with its jitter of a fifth too, or kube-scheduler would not start" .retrySeconds .renewSeconds .leaseSeconds) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $values.defragmentation.enabled $values.defragmentation.apply (semverCompare "<1.22.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail "defragmentation.apply is set, but this cluster is older than Kubernetes 1.22 and has no Eviction of policy/v1: remove it" -}}
{{- end -}}
{{- if and $values.idle.schedule $values.idle.evict (not (include "gpushare.policies" .)) -}}
{{- fail "idle.evict is set, but without admission policies (Kubernetes 1.30, admissionPolicy.enabled) the job's right to patch pods cannot be limited to one annotation: remove it, or run gpushare idle --evict yourself" -}}
{{- end -}}
{{- $old := semverCompare "<1.36.0-0" .Capabilities.KubeVersion.Version -}}
{{- if and $old $values.extender.claims -}}
{{- fail "extender.claims is set, but this cluster is older than Kubernetes 1.36: remove it" -}}
{{- end -}}
{{- if and $old (ne $values.webhook.claims "off") -}}
{{- fail "webhook.claims is set, but this cluster is older than Kubernetes 1.36: set it to off" -}}
{{- end -}}
{{- $nodePorts := $values.extender.service.originalNodePorts -}}
{{- if $nodePorts.enabled -}}
{{- if include "gpushare.second" . -}}
{{- fail "extender.service.originalNodePorts.enabled is set, but scheduler.mode=second has no Service: remove it, or set scheduler.mode=extender" -}}
{{- end -}}
{{- if $values.extender.tls.enabled -}}
{{- fail "extender.service.originalNodePorts.enabled is set, but the original's files call plain HTTP: set extender.tls.enabled=false and let networkPolicy.schedulerFrom name the control plane, or use gpushare install-scheduler, which calls over TLS" -}}
{{- end -}}
{{- if eq (int $nodePorts.gpushare) (int $nodePorts.topology) -}}
{{- fail "extender.service.originalNodePorts: gpushare and topology are the same: choose another port for one of them" -}}
{{- end -}}
{{- if eq (int $nodePorts.topology) (int $values.extender.port) -}}
{{- fail "extender.service.originalNodePorts.topology and extender.port are the same, which a Service cannot have twice: choose another extender.port" -}}
{{- end -}}
{{- end -}}
{{- if eq (int $values.extender.metricsPort) (int $values.extender.port) -}}
{{- fail "extender.metricsPort and extender.port are the same: choose another port for one of them" -}}
{{- end -}}
{{- range $type, $sizes := $values.topology.staticSets -}}
{{- range $size, $sets := $sizes -}}
{{- range $sets -}}
{{- if ne (len .) (int $size) -}}
{{- fail (printf "topology.staticSets: %v of node type %s is no set of %s GPUs" . $type $size) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if eq $values.claims.deviceClass $values.claims.exclusiveDeviceClass -}}
{{- fail "claims.deviceClass and claims.exclusiveDeviceClass are the same: choose another name for one of them" -}}
{{- end -}}
{{- if and (eq $values.certificates.source "cert-manager") (not $values.certificates.issuerRef.name) -}}
{{- fail "certificates.source is cert-manager, but no issuer is named: set certificates.issuerRef.name, or certificates.source=job" -}}
{{- end -}}
{{- if and (hasPrefix "driver" $values.isolation.default) (not $values.driverLimits.enabled) -}}
{{- fail "isolation.default needs memory limits of the driver, but no GPU can have this mode: set driverLimits.enabled=true, or another default" -}}
{{- end -}}
{{- if and (hasSuffix "mps" $values.isolation.default) (not $values.mps.enabled) -}}
{{- fail "isolation.default needs MPS, but no GPU can have this mode: set mps.enabled=true, or another default" -}}
{{- end -}}
{{- if and (eq $values.mps.default "mps") (not $values.mps.enabled) (not $values.isolation.default) -}}
{{- fail "mps.default is mps, but mps.enabled is false, and no GPU would have a limit: set mps.enabled=true, or mps.default=none" -}}
{{- end -}}
{{- $tls := $values.extender.tls -}}
{{- if ne (empty $tls.secretName) (empty $tls.clientSecretName) -}}
{{- fail "extender.tls.secretName and extender.tls.clientSecretName belong together, signed by one authority: set both or none" -}}
{{- end -}}
{{- if and $tls.clientSecretName (not $tls.clientNames) -}}
{{- fail "extender.tls.clientSecretName is set, but not whose certificate it holds: set extender.tls.clientNames to its common name or a DNS name" -}}
{{- end -}}
{{- if and $values.webhook.sizing.enabled (not $values.devicePlugin.record.enabled) -}}
{{- fail "webhook.sizing.enabled is set, but devicePlugin.record.enabled is false, and no memory in use is recorded: set it to true" -}}
{{- end -}}
{{- if and $values.webhook.sizing.enabled (not $values.webhook.enabled) -}}
{{- fail "webhook.sizing.enabled is set, but webhook.enabled is false: set it to true" -}}
{{- end -}}
{{- if $values.webhook.enabled -}}
{{- if and (ne $values.webhook.claims "off") (not (include "gpushare.claims" .)) -}}
{{- fail "webhook.claims is set, but no node can offer claims, and pods that are converted would stay pending: set claims.enabled=true, or webhook.claims=off" -}}
{{- end -}}
{{- if eq (int $values.webhook.port) (int $values.extender.port) -}}
{{- fail "webhook.port and extender.port are the same: choose another port for one of them" -}}
{{- end -}}
{{- if and (eq $values.webhook.failurePolicy "Fail") (semverCompare "<1.21.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail "webhook.failurePolicy is Fail, but before Kubernetes 1.21 namespaces cannot be excluded by name, and the cluster could not start its own pods: set Ignore" -}}
{{- end -}}
{{- if eq (int $values.webhook.port) (int $values.extender.metricsPort) -}}
{{- fail "webhook.port and extender.metricsPort are the same: choose another port for one of them" -}}
{{- end -}}
{{- $certificate := $values.webhook.certificate -}}
{{- if and $certificate.secretName (not $certificate.caBundle) (not $values.webhook.annotations) -}}
{{- fail "webhook.certificate.secretName is set, but the API server has no CA to trust: set webhook.certificate.caBundle, or webhook.annotations for something that injects it" -}}
{{- end -}}
{{- if and $certificate.caBundle (not $certificate.secretName) -}}
{{- fail "webhook.certificate.caBundle is set without webhook.certificate.secretName: the generated certificate has its own authority; set both or none" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Values that must not be null, by part. Helm removes the default of such a key: a protection would be off,
or a flag, a port or a field would be empty. For the others null means none, as their empty value does.
*/}}
{{- define "gpushare.neededValues" -}}
top: [resourceDomain, annotationPrefix, api, topology]
image: [registry]
certificates: [source, validDays, schedule]
certificates.issuerRef: [kind, group]
claims: [deviceClass, exclusiveDeviceClass, unhealthyPods]
scheduler: [mode, name, replicas, verbosity, percentageOfNodesToScore, burstPods]
scheduler.image: [pullPolicy]
scheduler.leaderElection: [leaseSeconds, renewSeconds, retrySeconds]
scheduler.podDisruptionBudget: [enabled]
extender: [port, metricsPort, policy, topologyPolicy, candidates, nominate, mixHistory, logLevel, weight, httpTimeoutSeconds]
extender.image: [repository, pullPolicy]
extender.service: [clusterIP]
extender.service.originalNodePorts: [enabled, gpushare, topology]
extender.tls: [enabled]
devicePlugin: [memoryUnit, visibleDevices, ignoredXids, hostProcesses, logLevel, port, kubeletRoot, nvml, updateStrategy, maxUnavailable]
devicePlugin.image: [repository, pullPolicy]
devicePlugin.cdi: [enabled, directory]
devicePlugin.record: [enabled, seconds]
mps: [enabled, default, root, shmSize, readOnlyPipes, control]
driverLimits: [checkSeconds, cgroupRoot]
isolation: [default]
webhook: [enabled, replicas, port, failurePolicy, timeoutSeconds, claims, excludedNamespaces, certificate]
webhook.sizing: [intervalSeconds, marginPercent]
webhook.podDisruptionBudget: [enabled]
dashboard: [port, intervalSeconds, requireToken]
dashboard.image: [repository, pullPolicy]
dashboard.tls: [enabled]
defragmentation: [schedule, maxEvictions, maxPerNode, maxPerNamespace, waitedSeconds]
defragmentation.image: [repository, pullPolicy]
idle: [evict, idleFor, grace, maxEvictions, maxNotices]
idle.image: [repository, pullPolicy]
verify.image: [repository, pullPolicy]
viewerRole: [enabled]
openshift: [enabled]
networkPolicy: [enabled]
admissionPolicy: [action, exemptUsers, exemptNamespaces]
monitoring: [interval]
monitoring.tls: [enabled]
monitoring.alerts: [enabled, runbookUrl, dashboardUrl]
monitoring.dashboards: [label, labelValue]
{{- end -}}
