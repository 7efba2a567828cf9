{{/* Certificates of the listeners: whose Secret each pod mounts, and which ones this release issues. */}}

{{/*
What this release issues, as JSON: servers (name of the Secret to the names in its certificate),
clients (name of the Secret to server and name) and webhooks (configuration to Secret). Secrets that
the values name are the operator's.
*/}}
{{- define "gpushare.issued" -}}
{{- $namespace := .Release.Namespace -}}
{{- $servers := dict -}}
{{- $clients := dict -}}
{{- $webhooks := dict -}}
{{- $extender := include "gpushare.name" (list . "extender") -}}
{{- if and (include "gpushare.extenderTls" .) (not .Values.extender.tls.secretName) -}}
{{- $client := printf "%s-client" $extender -}}
{{- $_ := set $servers $extender (list (printf "%s.%s.svc" $extender $namespace)) -}}
{{- $_ := set $clients $client (dict "server" $extender "name" $client) -}}
{{- end -}}
{{- if and .Values.monitoring.tls.enabled (not .Values.monitoring.tls.secretName) -}}
{{- $_ := set $servers (include "gpushare.metricsSecret" .) (list (include "gpushare.metricsHost" .)) -}}
{{- end -}}
{{- $dashboard := .Values.dashboard -}}
{{- if and $dashboard.enabled $dashboard.tls.enabled (not $dashboard.tls.secretName) -}}
{{- $name := include "gpushare.name" (list . "dashboard") -}}
{{- /* localhost too, which is where `kubectl port-forward` puts it. */ -}}
{{- $_ := set $servers $name (list (printf "%s.%s.svc" $name $namespace) "localhost" "127.0.0.1") -}}
{{- end -}}
{{- if and .Values.webhook.enabled (not .Values.webhook.certificate.secretName) -}}
{{- $name := include "gpushare.name" (list . "webhook") -}}
{{- $_ := set $servers $name (list (printf "%s.%s.svc" $name $namespace)) -}}
{{- $_ := set $webhooks $name $name -}}
{{- end -}}
{{- dict "servers" $servers "clients" $clients "webhooks" $webhooks | toJson -}}
{{- end -}}

{{/* "true" where a Job of this release issues certificates. */}}
{{- define "gpushare.issuesByJob" -}}
{{- $issued := include "gpushare.issued" . | fromJson -}}
{{- if and $issued.servers (eq .Values.certificates.source "job") -}}true{{- end -}}
{{- end -}}

{{/* Names of the Secrets that the Job fills, as a JSON list; the one of the authorities is the last. */}}
{{- define "gpushare.issuedSecrets" -}}
{{- $issued := include "gpushare.issued" . | fromJson -}}
{{- $names := concat (keys $issued.servers | sortAlpha) (keys $issued.clients | sortAlpha) -}}
{{- append $names (include "gpushare.name" (list . "authorities")) | toJson -}}
{{- end -}}

{{/*
Priority class of the Job's pod: the pods of the release wait for its Secrets, and preempt others on a full cluster.
With the gate WorkloadWithJob, Kubernetes 1.37 creates a PodGroup for the Job, and allows it no class system-*.
*/}}
{{- define "gpushare.issuingPriority" -}}
{{- $class := default "" .Values.scheduler.priorityClassName -}}
{{- $groups := or (.Capabilities.APIVersions.Has "scheduling.k8s.io/v1beta1/PodGroup") (.Capabilities.APIVersions.Has "scheduling.k8s.io/v1alpha2/PodGroup") -}}
{{- if not (and $groups (hasPrefix "system-" $class)) -}}{{ $class }}{{- end -}}
{{- end -}}

{{/* The pod of the Job and of the CronJob. */}}
{{- define "gpushare.issuingPod" -}}
{{- $issued := include "gpushare.issued" . | fromJson -}}
restartPolicy: OnFailure
serviceAccountName: {{ include "gpushare.name" (list . "certificates") }}
enableServiceLinks: false
{{- with include "gpushare.issuingPriority" . }}
priorityClassName: {{ . | quote }}
{{- end }}
securityContext:
  {{- include "gpushare.restrictedPod" . | nindent 2 }}
containers:
  - name: certificates
    image: {{ include "gpushare.image" (list . .Values.extender.image) }}
    imagePullPolicy: {{ include "gpushare.pullPolicy" (list . .Values.extender.image) }}
    command: [python3, -m, gpukube.issuing]
    args:
      - --namespace={{ .Release.Namespace }}
      - --authorities={{ include "gpushare.name" (list . "authorities") }}
      - --valid-days={{ .Values.certificates.validDays }}
      {{- range $secret, $names := $issued.servers }}
      - --server={{ $secret }}={{ join "," $names }}
      {{- end }}
      {{- range $secret, $client := $issued.clients }}
      - --client={{ $secret }}@{{ $client.server }}={{ $client.name }}
      {{- end }}
      {{- range $configuration, $secret := $issued.webhooks }}
      - --webhook={{ $configuration }}@{{ $secret }}={{ include "gpushare.webhooks" $ | fromJsonArray | join "," }}
      {{- end }}
    resources:
      requests: {cpu: 10m, memory: 64Mi}
      limits: {memory: 128Mi}
    securityContext:
      {{- include "gpushare.restrictedContainer" . | nindent 6 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.scheduler.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.scheduler.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
A Secret as the source of a volume: (list root "secret" "name from the values, or empty"). Pods wait
for the keys of a Secret that this release fills.
*/}}
{{- define "gpushare.certificateVolume" -}}
{{- $given := index . 2 -}}
secretName: {{ default (index . 1) $given | quote }}
{{- if not $given }}
items:
  - {key: ca.crt, path: ca.crt}
  - {key: tls.crt, path: tls.crt}
  - {key: tls.key, path: tls.key}
{{- end }}
{{- end -}}

{{/* The secret of all metrics ports. */}}
{{- define "gpushare.metricsSecret" -}}
{{- default (include "gpushare.name" (list . "metrics")) .Values.monitoring.tls.secretName -}}
{{- end -}}

{{/* The name in their certificate: Prometheus scrapes pods by address, and no certificate names an address of a pod. */}}
{{- define "gpushare.metricsHost" -}}
{{- include "gpushare.name" (list . "metrics") }}.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* The same place in every container with such a port. */}}
{{- define "gpushare.metricsFolder" -}}
/etc/gpushare-metrics
{{- end -}}

{{- define "gpushare.metricsMount" -}}
{{- if .Values.monitoring.tls.enabled }}
- name: metrics-certificate
  mountPath: {{ include "gpushare.metricsFolder" . }}
  readOnly: true
{{- end }}
{{- end -}}

{{- define "gpushare.metricsVolume" -}}
{{- if .Values.monitoring.tls.enabled }}
- name: metrics-certificate
  secret:
    {{- include "gpushare.certificateVolume" (list . (include "gpushare.metricsSecret" .) .Values.monitoring.tls.secretName) | nindent 4 }}
{{- end }}
{{- end -}}

{{- define "gpushare.metricsScheme" -}}
{{- ternary "HTTPS" "HTTP" .Values.monitoring.tls.enabled -}}
{{- end -}}
